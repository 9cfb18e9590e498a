"""From a listener, an API key and a version to the code that serves it: looked up once, then in one dict.

The roles of a process register what they serve, and on which kind of listener. A handler and its message
module are imported at first use, so that a process starts without loading what nobody asked for. A request
carries its route.
"""

from collections.abc import Callable, Collection
from typing import Any, NamedTuple, cast

from headrace.base.limits import FRAME_WITHOUT_RECORDS_BYTES_MAX, LONG_FRAME_BYTES
from headrace.base.time import Now
from headrace.node.connection import Connection
from headrace.node.effects import Parts
from headrace.node.metrics import ApiMetrics, Metrics
from headrace.node.spliced import Spliced
from headrace.protocol.api import APIS, Listener, request_codec, response_codec
from headrace.protocol.compiler import Codec
from headrace.protocol.framing import response_frame

# The APIs that are served, by a role and listener of theirs: a key is listed only when it works. Lowest and
# highest version; minima are Kafka 4.3's own, but Produce is advertised from 0 for old librdkafka, though
# only 3 and up is served (KAFKA-18659).
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
    32: (1, 4),  # describe_configs
    33: (0, 2),  # alter_configs
    34: (1, 2),  # alter_replica_log_dirs
    35: (1, 5),  # describe_log_dirs
    37: (0, 3),  # create_partitions
    42: (0, 2),  # delete_groups
    43: (0, 2),  # elect_leaders
    44: (0, 1),  # incremental_alter_configs
    46: (0, 0),  # list_partition_reassignments
    47: (0, 0),  # offset_delete
    55: (0, 2),  # describe_quorum
    57: (0, 2),  # update_features
    60: (0, 2),  # describe_cluster
    61: (0, 0),  # describe_producers
    65: (0, 0),  # describe_transactions
    66: (0, 2),  # list_transactions
    68: (0, 1),  # consumer_group_heartbeat
    69: (0, 1),  # consumer_group_describe
    74: (0, 1),  # list_config_resources
    75: (0, 0),  # describe_topic_partitions
    30001: (0, 0),  # split_ranges
    30010: (0, 0),  # join_sink
    30011: (0, 0),  # commit_sink
    30012: (0, 0),  # abort_sink
    30013: (0, 0),  # list_sinks
    30014: (0, 0),  # reset_sink
}

PRODUCE = 0
OFFSET_COMMIT = 8


FRAME_BYTES_MAX = 2**31 - 1


class Request:
    """One request on its way through the node: who asks, what, and since when.

    `body` may hold views of the connection's buffer: whoever parks or stores, copies.
    """

    __slots__ = ("body", "client_id", "connection", "correlation_id", "now", "route", "version")

    def __init__(
        self,
        now: Now,
        connection: Connection,
        route: "Route",
        correlation_id: int,
        client_id: str | None,
        body: Any,
    ) -> None:
        self.now = now
        self.connection = connection
        self.route = route
        self.version = route.version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body = body


Handle = Callable[[Request], Any]

# What may be remembered of a request that was answered at once: the request, its answer, its frame, and
# where the body begins in the frame.
Learn = Callable[[Request, Parts, memoryview, int], None]


class Route:
    """Everything needed to serve one API in one version, one attribute away."""

    __slots__ = (
        "api_key",
        "decode",
        "decoded_at_once_max",
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


def framed(response: Codec[Any], correlation_id: int, reply: Any) -> Parts:
    """The frame of an answer."""
    # the only parts that are not bytes are the spans that a handler put in as records
    body: Any = reply.encoded() if type(reply) is Spliced else response.encode_parts(reply)
    return cast(Parts, response_frame(correlation_id, response.header_version, body))


class Served(NamedTuple):
    """One API as a role registered it. What makes the handler, and what learns from it, is called once."""

    listeners: Listener
    make: Callable[[], Handle]
    make_learn: Callable[[], Learn] | None
    has_records: bool


class Routes:
    """The routes of one process."""

    __slots__ = ("_controller_listeners", "_handlers", "_made", "_metrics", "_served")

    def __init__(self, metrics: Metrics, controller_listeners: Collection[str]) -> None:
        self._metrics = metrics
        self._controller_listeners = frozenset(controller_listeners)
        self._served: dict[int, Served] = {}
        self._handlers: dict[int, tuple[Handle, Learn | None]] = {}
        self._made: dict[tuple[str, int, int], Route] = {}

    def serve(
        self,
        api_key: int,
        listeners: Listener,
        make: Callable[[], Handle],
        *,
        learn: Callable[[], Learn] | None = None,
        has_records: bool = False,
    ) -> None:
        """A role answers this API on listeners of these kinds."""
        assert api_key in SERVED
        assert api_key not in self._served
        self._served[api_key] = Served(listeners, make, learn, has_records)

    def advertised(self, listener: str) -> list[tuple[int, int, int]]:
        """Key, lowest and highest version of all that is served on that listener, by key."""
        kind = self._kind(listener)
        return [
            (api_key, *SERVED[api_key])
            for api_key, served in sorted(self._served.items())
            if kind in served.listeners
        ]

    def _kind(self, listener: str) -> Listener:
        return Listener.CONTROLLER if listener in self._controller_listeners else Listener.BROKER

    def find(self, listener: str, api_key: int, version: int) -> Route | None:
        """None: we do not serve that."""
        route = self._made.get((listener, api_key, version))
        if route is None:
            served = self._served.get(api_key)
            if served is None or self._kind(listener) not in served.listeners:
                return None
            api = APIS[api_key]
            if not api.first <= version <= api.last:
                return None
            handle, learn = self._handler(api_key, served)
            route = self._made[(listener, api_key, version)] = Route(
                api_key,
                version,
                handle,
                request_codec(api_key, version),
                response_codec(api_key, version),
                self._metrics.apis.setdefault(api_key, ApiMetrics()),
                has_records=served.has_records,
                learn=learn,
            )
        return route

    def _handler(self, api_key: int, served: Served) -> tuple[Handle, Learn | None]:
        """One for all versions and listeners."""
        made = self._handlers.get(api_key)
        if made is None:
            learn = served.make_learn
            made = self._handlers[api_key] = served.make(), None if learn is None else learn()
        return made
