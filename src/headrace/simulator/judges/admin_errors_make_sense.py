"""An admin client of a cluster gets only errors that its request can cause, also while nodes fail."""

from headrace.simulator.history import AdminAnswered, Event, Violation

# nobody decides; or the disk of the controller is full
NOBODY_DECIDES = {"NONE", "NOT_CONTROLLER", "REQUEST_TIMED_OUT", "KAFKA_STORAGE_ERROR"}
EXPECTED = {
    "create": NOBODY_DECIDES | {"TOPIC_ALREADY_EXISTS", "INVALID_REPLICATION_FACTOR"},
    "delete": NOBODY_DECIDES | {"UNKNOWN_TOPIC_OR_PARTITION"},
    "grow": NOBODY_DECIDES | {"INVALID_PARTITIONS", "INVALID_REPLICATION_FACTOR"},
    "alter": NOBODY_DECIDES,
    "describe": {"NONE", "UNKNOWN_TOPIC_OR_PARTITION"},  # a node that lags behind
    "elect": NOBODY_DECIDES | {"ELECTION_NOT_NEEDED", "PREFERRED_LEADER_NOT_AVAILABLE"},
}


class AdminErrorsMakeSense:
    name = "admin_errors_make_sense"

    def see(self, event: Event, /) -> None:
        match event:
            case AdminAnswered(client, request, error) if error not in EXPECTED[request]:
                raise Violation(f"{client} was told {error} for {request!r}")
            case _:
                pass
