"""Requests with a value in every field, and answers as one readable line: for tests that record them all."""

from __future__ import annotations

from collections.abc import Container
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from headrace.protocol import messages
from headrace.protocol.errors import ErrorCode
from headrace.protocol.notation import Array, Primitive, Request, Struct
from headrace.records.builder import build_batch

BATCH = build_batch([(1_700_000_000_000, None, b"v", ())])

# By name of the field. All other texts are "t", all other numbers and flags have their defaults.
VALUES: dict[str, Any] = {
    **dict.fromkeys(("group_id", "groups_names", "groups", "key", "coordinator_keys"), "g"),
    **dict.fromkeys(("transactional_id", "v3_and_below_transactional_id", "transactional_ids"), "tx"),
    **dict.fromkeys(("acks", "num_partitions", "replication_factor", "min_bytes"), 1),
    **dict.fromkeys(("replica_id", "current_leader_epoch", "leader_epoch", "generation_id"), -1),
    **dict.fromkeys(("partition_max_bytes", "max_bytes", "timeout_ms", "max_num_offsets"), 1_000),
    **dict.fromkeys(("partition_index", "partition_indexes", "partitions", "partition"), 0),
    **dict.fromkeys(("last_fetched_epoch", "generation_id_or_member_epoch", "committed_leader_epoch"), -1),
    "count": 3,
    "resource_type": 2,
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "protocol_type": "consumer",
    "member_id": "",
    "subscribed_topic_regex": None,
    "instance_id": None,
    "group_instance_id": None,
    "server_assignor": None,
    "path": "data",
    "types_filter": "classic",
    "states_filter": "Empty",
    "endpoint_type": 1,
}


def requests(served: Container[int]) -> dict[int, type[Request]]:
    found = {}
    for module in iter_modules(messages.__path__):
        for each in vars(import_module(f"{messages.__name__}.{module.name}")).values():
            if isinstance(each, type) and issubclass(each, Request) and each.KEY in served:
                found[each.KEY] = each
    return found


def fill(kind: Any, version: int, values: dict[str, Any], name: str = "") -> Any:
    """A value of each field that the version carries; lists have one element, unless a list is given."""
    if isinstance(kind, Array):
        if isinstance(values.get(name), list):
            return values[name]
        return [fill(kind.element, version, values, name)]
    if isinstance(kind, Primitive):
        if name in values:
            return values[name]
        return {"string": "t", "records": BATCH}.get(kind.name, kind.default)
    fields = [each for each in kind.__fields__ if each.stands_in(version)]
    return kind(**{each.name: fill(each.kind, version, values, each.name) for each in fields})


def readable(value: Any, topic_id: bytes) -> str:
    """Without what is random, and with names of error codes; defaults are left out."""
    if isinstance(value, list):
        return f"[{', '.join(readable(each, topic_id) for each in value)}]"
    if not isinstance(value, Struct):
        return {topic_id: "TOPIC-ID"}.get(value) or repr(
            bytes(value) if isinstance(value, memoryview) else value
        )
    told = []
    for field in type(value).__fields__:
        one = getattr(value, field.name)
        if one == field.make_default():
            continue
        if field.name.endswith("error_code"):
            text = ErrorCode(one).name
        elif field.name in ("cluster_id", "session_id", "member_id", "leader") and one:
            text = "…"
        else:
            text = readable(one, topic_id)
        told.append(f"{field.name}={text}")
    return f"{type(value).__name__}({', '.join(told)})"
