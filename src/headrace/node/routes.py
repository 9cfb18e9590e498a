"""From an API key and version to the code that serves it, looked up once and then found in one dict.

`SERVED` is what we advertise: a key is listed only when it works. Handler and message modules are imported at
first use, so that a broker starts without loading what nobody asked for.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from headrace.node.metrics import ApiMetrics, Metrics
from headrace.protocol.api import request_codec, response_codec
from headrace.protocol.compiler import Codec

# API key → (handler module, lowest version, highest version). Minima are Kafka 4.3's own; Produce is
# advertised from 0 for old librdkafka, though only 3 and up is served (KAFKA-18659).
SERVED: dict[int, tuple[str, int, int]] = {
    0: ("produce", 0, 13),
    1: ("fetch", 4, 18),
    2: ("list_offsets", 1, 11),
    3: ("metadata", 0, 13),
    8: ("offset_commit", 2, 10),
    9: ("offset_fetch", 1, 10),
    10: ("find_coordinator", 0, 6),
    11: ("join_group", 0, 9),
    12: ("heartbeat", 0, 4),
    13: ("leave_group", 0, 5),
    14: ("sync_group", 0, 5),
    15: ("describe_groups", 0, 6),
    16: ("list_groups", 0, 5),
    18: ("api_versions", 0, 4),
    19: ("create_topics", 2, 7),
    20: ("delete_topics", 1, 6),
    21: ("delete_records", 0, 2),
    22: ("init_producer_id", 0, 5),
    23: ("offset_for_leader_epoch", 2, 4),
    24: ("add_partitions_to_txn", 0, 5),
    25: ("add_offsets_to_txn", 0, 4),
    26: ("end_txn", 0, 5),
    27: ("write_txn_markers", 1, 2),
    28: ("txn_offset_commit", 0, 5),
    32: ("describe_configs", 1, 4),
    33: ("alter_configs", 0, 2),
    34: ("alter_replica_log_dirs", 1, 2),
    35: ("describe_log_dirs", 1, 5),
    37: ("create_partitions", 0, 3),
    42: ("delete_groups", 0, 2),
    43: ("elect_leaders", 0, 2),
    44: ("incremental_alter_configs", 0, 1),
    46: ("list_partition_reassignments", 0, 0),
    47: ("offset_delete", 0, 0),
    55: ("describe_quorum", 0, 2),
    57: ("update_features", 0, 2),
    60: ("describe_cluster", 0, 2),
    61: ("describe_producers", 0, 0),
    65: ("describe_transactions", 0, 0),
    66: ("list_transactions", 0, 2),
    68: ("consumer_group_heartbeat", 0, 1),
    69: ("consumer_group_describe", 0, 1),
    74: ("list_config_resources", 0, 1),
    75: ("describe_topic_partitions", 0, 0),
    30001: ("split_ranges", 0, 0),
    30010: ("join_sink", 0, 0),
    30011: ("commit_sink", 0, 0),
    30012: ("abort_sink", 0, 0),
    30013: ("list_sinks", 0, 0),
    30014: ("reset_sink", 0, 0),
}

PRODUCE = 0
OFFSET_COMMIT = 8
PRODUCE_VERSION_MIN = 3


class Route:
    """Everything needed to serve one API in one version, one attribute away."""

    __slots__ = ("api_key", "decode", "handle", "metrics", "request", "response", "version")

    def __init__(
        self,
        api_key: int,
        version: int,
        handle: Callable[..., Any],
        request: Codec[Any],
        response: Codec[Any],
        metrics: ApiMetrics,
    ) -> None:
        self.api_key = api_key
        self.version = version
        self.handle = handle
        self.request = request
        self.decode = request.decode
        self.response = response
        self.metrics = metrics


class Routes:
    __slots__ = ("_made", "_metrics")

    def __init__(self, metrics: Metrics) -> None:
        self._made: dict[tuple[int, int], Route] = {}
        self._metrics = metrics

    def find(self, api_key: int, version: int) -> Route | None:
        """None: we do not serve that."""
        route = self._made.get((api_key, version))
        if route is not None:
            return route
        served = SERVED.get(api_key)
        if served is None or not served[1] <= version <= served[2]:
            return None
        if api_key == PRODUCE and version < PRODUCE_VERSION_MIN:
            return None
        module = import_module(f"headrace.node.handlers.{served[0]}")
        route = self._made[(api_key, version)] = Route(
            api_key,
            version,
            module.handle,
            request_codec(api_key, version),
            response_codec(api_key, version),
            self._metrics.apis.setdefault(api_key, ApiMetrics()),
        )
        return route
