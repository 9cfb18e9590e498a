"""Routes: handler, codecs and limits of each listener, API key and version, in one dict.

Each role has a table of the APIs that it serves, by kind of listener. A handler and its message
module are imported at first use, so that a process starts without loading what it does not need. A request
contains its route.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar

from headrace.base.limits import FRAME_WITHOUT_RECORDS_BYTES_MAX, LONG_FRAME_BYTES
from headrace.base.time import Now
from headrace.node.connection import Connection
from headrace.node.effects import Parts
from headrace.node.metrics import ApiMetrics, Metrics
from headrace.protocol.api import APIS, Listener, request_codec, response_codec
from headrace.protocol.compiler import Codec

# The APIs that are served, by a role and listener of theirs: a key is listed only when it works. Lowest and
# highest version; minima are Kafka 4.3's own, but Produce is advertised from 0 for old librdkafka, though
# only 3 and up is served (KAFKA-18659). So is SaslHandshake: in version 0 logins would have no frames.
SERVED: dict[int, tuple[int, int]] = {
    0: (0, 13),  # produce
    1: (4, 18),  # fetch
    2: (1, 11),  # list_offsets
    3: (0, 13),  # metadata
    8: (2, 10),  # offset_commit
    9: (1, 10),  # offset_fetch
    10: (0, 6),  # find_coordinator
    11: (0, 9),  # join_group
    12: (0, 4),  # heartbeat
    13: (0, 5),  # leave_group
    14: (0, 5),  # sync_group
    15: (0, 6),  # describe_groups
    16: (0, 5),  # list_groups
    17: (0, 1),  # sasl_handshake
    18: (0, 4),  # api_versions
    19: (2, 7),  # create_topics
    20: (1, 6),  # delete_topics
    21: (0, 2),  # delete_records
    22: (0, 5),  # init_producer_id
    23: (2, 4),  # offset_for_leader_epoch
    24: (0, 5),  # add_partitions_to_txn
    25: (0, 4),  # add_offsets_to_txn
    26: (0, 5),  # end_txn
    27: (1, 2),  # write_txn_markers
    28: (0, 5),  # txn_offset_commit
    29: (1, 3),  # describe_acls
    30: (1, 3),  # create_acls
    31: (1, 3),  # delete_acls
    32: (1, 4),  # describe_configs
    33: (0, 2),  # alter_configs
    34: (1, 2),  # alter_replica_log_dirs
    35: (1, 5),  # describe_log_dirs
    36: (0, 2),  # sasl_authenticate
    37: (0, 3),  # create_partitions
    38: (1, 3),  # create_delegation_token
    39: (1, 2),  # renew_delegation_token
    40: (1, 2),  # expire_delegation_token
    41: (1, 3),  # describe_delegation_token
    42: (0, 2),  # delete_groups
    43: (0, 2),  # elect_leaders
    44: (0, 1),  # incremental_alter_configs
    46: (0, 0),  # list_partition_reassignments
    47: (0, 0),  # offset_delete
    48: (0, 1),  # describe_client_quotas
    49: (0, 1),  # alter_client_quotas
    50: (0, 0),  # describe_user_scram_credentials
    51: (0, 0),  # alter_user_scram_credentials
    55: (0, 2),  # describe_quorum
    57: (0, 2),  # update_features
    60: (0, 2),  # describe_cluster
    61: (0, 0),  # describe_producers
    64: (0, 0),  # unregister_broker
    65: (0, 0),  # describe_transactions
    66: (0, 2),  # list_transactions
    68: (0, 1),  # consumer_group_heartbeat
    69: (0, 1),  # consumer_group_describe
    74: (0, 1),  # list_config_resources
    75: (0, 0),  # describe_topic_partitions
    30001: (0, 0),  # split_ranges
    30002: (0, 0),  # append_at
    30010: (0, 0),  # join_sink
    30011: (0, 0),  # commit_sink
    30012: (0, 0),  # abort_sink
    30013: (0, 0),  # list_sinks
    30014: (0, 0),  # reset_sink
}

# The same for requests of other nodes, which arrive on controllers' listeners alone.
SERVED_TO_NODES: dict[int, tuple[int, int]] = {
    52: (0, 2),  # vote
    53: (0, 1),  # begin_quorum_epoch
    54: (0, 1),  # end_quorum_epoch
    56: (2, 3),  # alter_partition
    58: (0, 0),  # envelope
    59: (0, 1),  # fetch_snapshot
    62: (0, 4),  # broker_registration
    63: (0, 2),  # broker_heartbeat
    67: (0, 0),  # allocate_producer_ids
    73: (0, 0),  # assign_replicas_to_dirs
}

# Those that only the active controller answers: a broker forwards them.
FORWARDED = frozenset(
    (
        19,  # create_topics
        20,  # delete_topics
        30,  # create_acls
        31,  # delete_acls
        33,  # alter_configs
        37,  # create_partitions
        38,  # create_delegation_token
        39,  # renew_delegation_token
        40,  # expire_delegation_token
        43,  # elect_leaders
        44,  # incremental_alter_configs
        46,  # list_partition_reassignments
        49,  # alter_client_quotas
        51,  # alter_user_scram_credentials
        55,  # describe_quorum
        57,  # update_features
        64,  # unregister_broker
    )
)

PRODUCE = 0
FETCH = 1
OFFSET_COMMIT = 8


FRAME_BYTES_MAX = 2**31 - 1


@dataclass(slots=True, eq=False)
class Request:
    """One request in the node: its connection, its message, and the time of its arrival.

    `body` may contain views of the connection's buffer: code that keeps them must copy them.
    """

    now: Now
    connection: Connection
    route: "Route"
    version: int
    correlation_id: int
    client_id: str | None
    body: Any
    is_usual: bool = False  # of the kind that a fast path remembers; its handler says so
    size: int = 0  # of its frame
    is_exempt: bool = False  # from quotas: a login, or of another broker; its handler says so
    token_id: str | None = None  # of the delegation token that it names by a secret; its handler says so


class WebRequest(NamedTuple):
    """A request by HTTP, as far as rights and the audit log have to know it."""

    now: Now
    connection: Connection
    what: str  # method and path


R = TypeVar("R")  # an object that makes the handlers of a role

Handle = Callable[[Request], Any]

# What may be remembered of a usual request that was answered at once: the request, its answer, its frame, and
# where the body begins in the frame.
Learn = Callable[[Request, Parts | None, memoryview, int], None]


# Sends a request's frame to the node that can answer it. None: that is this node.
Forward = Callable[[Now, Connection, memoryview, "Route", int, str | None], Any]


class Route:
    """Everything that is needed to serve one API in one version."""

    __slots__ = (
        "api_key",
        "decode",
        "decoded_at_once_max",
        "forward",
        "frame_bytes_max",
        "handle",
        "learn",
        "metrics",
        "request",
        "response",
        "version",
    )

    def __init__(
        self,
        api_key: int,
        version: int,
        handle: Handle,
        request: Codec[Any],
        response: Codec[Any],
        metrics: ApiMetrics,
        *,
        has_records: bool = False,
        learn: Learn | None = None,
        forward: Forward | None = None,
    ) -> None:
        self.api_key = api_key
        self.version = version
        self.handle = handle
        self.request = request
        self.decode = request.decode
        self.response = response
        self.metrics = metrics
        # bytes: longer frames are refused, or decoded in slices; records are not decoded and may be long
        self.frame_bytes_max = FRAME_BYTES_MAX if has_records else FRAME_WITHOUT_RECORDS_BYTES_MAX
        self.decoded_at_once_max = FRAME_BYTES_MAX if has_records else LONG_FRAME_BYTES
        self.learn = learn
        self.forward = forward


class Served(NamedTuple, Generic[R]):
    """One API as a role serves it. `make` and `learn` are called once for each object of the role."""

    api_key: int
    listeners: Listener
    make: Callable[[R], Handle]
    learn: Callable[[R], Learn] | None = None
    has_records: bool = False
    in_columns: bool = False  # its handler takes and makes arrays of flat structs as columns


class RoleApis(Generic[R]):
    """All APIs that a role serves. Each role has such a table, made once in a process, however many nodes the
    process starts: a test may start thousands.
    """

    __slots__ = ("on_brokers", "on_controllers")

    def __init__(self, served: Iterable[Served[R]]) -> None:
        # by API key, on brokers' and on controllers' listeners
        self.on_brokers: dict[int, Served[R]] = {}
        self.on_controllers: dict[int, Served[R]] = {}
        for one in served:
            is_for_nodes = one.api_key in SERVED_TO_NODES and one.listeners is Listener.CONTROLLER
            assert one.api_key in SERVED or is_for_nodes
            for kind in one.listeners:
                assert one.api_key not in self.on(kind)
                self.on(kind)[one.api_key] = one

    def on(self, kind: Listener) -> dict[int, Served[R]]:
        return self.on_controllers if kind is Listener.CONTROLLER else self.on_brokers


@cache
def do_contradict(one: RoleApis[Any], other: RoleApis[Any]) -> bool:
    """Both serve the same API on the same listeners."""
    return not (
        one.on_brokers.keys().isdisjoint(other.on_brokers)
        and one.on_controllers.keys().isdisjoint(other.on_controllers)
    )


class Routes:
    """The routes of one process."""

    __slots__ = ("_controller_listeners", "_forward", "_handlers", "_made", "_metrics", "_roles", "known")

    def __init__(self, metrics: Metrics, controller_listeners: Collection[str]) -> None:
        self._metrics = metrics
        self._controller_listeners = frozenset(controller_listeners)
        self._roles: list[tuple[Any, RoleApis[Any]]] = []
        self._forward: Forward | None = None
        self._handlers: dict[tuple[int, Listener], tuple[Handle, Learn | None]] = {}
        self._made: dict[tuple[str, int, int], Route] = {}
        # the route of (listener, API key, version), if a request has asked for it before
        self.known: Callable[[tuple[str, int, int]], Route | None] = self._made.get

    def serve(self, role: R, apis: RoleApis[R]) -> None:
        """A role of this process answers these."""
        assert not any(do_contradict(apis, others) for _, others in self._roles)
        self._roles.append((role, apis))

    def forward(self, forward: Forward) -> None:
        """Clients' requests for the active controller go through this; the controller's listeners answer them
        here.
        """
        self._forward = forward

    def advertised(self, listener: str) -> list[tuple[int, int, int]]:
        """Key, lowest and highest version of all that is served on that listener, by key."""
        kind = self._kind(listener)
        served = {api_key for _, apis in self._roles for api_key in apis.on(kind)}
        return [(api_key, *(SERVED.get(api_key) or SERVED_TO_NODES[api_key])) for api_key in sorted(served)]

    def _kind(self, listener: str) -> Listener:
        return Listener.CONTROLLER if listener in self._controller_listeners else Listener.BROKER

    def find(self, listener: str, api_key: int, version: int) -> Route | None:
        """None: we do not serve that."""
        route = self._made.get((listener, api_key, version))
        if route is None:
            kind = self._kind(listener)
            role, served = self._served(kind, api_key)
            if served is None:
                return None
            api = APIS[api_key]
            if not api.first <= version <= api.last:
                return None
            handle, learn = self._handler(role, served)
            route = self._made[(listener, api_key, version)] = Route(
                api_key,
                version,
                handle,
                request_codec(api_key, version, in_columns=served.in_columns),
                response_codec(api_key, version, in_columns=served.in_columns),
                self._metrics.apis.setdefault(api_key, ApiMetrics()),
                has_records=served.has_records,
                learn=learn,
                forward=self._forward if api_key in FORWARDED and kind is Listener.BROKER else None,
            )
        return route

    def _served(self, kind: Listener, api_key: int) -> tuple[Any, Served[Any] | None]:
        """Which role serves that API there, and how."""
        for role, apis in self._roles:
            served = apis.on(kind).get(api_key)
            if served is not None:
                return role, served
        return None, None

    def _handler(self, role: Any, served: Served[Any]) -> tuple[Handle, Learn | None]:
        """One for all versions and all listeners of its kind."""
        key = (served.api_key, served.listeners)
        made = self._handlers.get(key)
        if made is None:
            handle = served.make(role)
            made = self._handlers[key] = handle, None if served.learn is None else served.learn(role)
        return made
