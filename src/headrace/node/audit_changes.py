"""What requests change, for the audit log: one row per API that changes rules, users, quotas, tokens,
settings or topics.

A change is written when it is committed, with its result. If another node becomes the active controller
before that, nobody here knows the result, and the entry says so. A refused change is written at once.
"""

from collections.abc import Callable, Iterable
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from headrace.base.time import Now
from headrace.machines.configs.definition import broker_config_keys, group_config_keys, topic_config_keys
from headrace.machines.security.acl_rules import (
    AclFilter,
    AclRule,
    Operation,
    PatternType,
    ResourceType,
    word,
)
from headrace.machines.security.scram import MECHANISMS_BY_ID
from headrace.node.audit import Audit, Entry, clipped, request_facts
from headrace.node.metadata_replies import CommittedReply, KnownReply
from headrace.node.routes import Request
from headrace.node.waiting import Waiter
from headrace.protocol.api import ApiKey
from headrace.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.node.metadata_log import MetadataLog

HIDDEN: Final = "[hidden]"
UNKNOWN_RESULT: Final = "unknown: another node became the active controller"

# Settings of one resource in one entry; a resource has a few hundred keys at the most.
SETTINGS_MAX: Final = 500


def note(audit: Audit, metadata: "MetadataLog", request: Request, reply: Any) -> None:
    """Writes the changes of a request that the controller has decided, now or when they are committed."""
    tell = CHANGES.get(request.route.api_key)
    if tell is None or getattr(request.body, "validate_only", False):
        return
    planned = reply.planned if isinstance(reply, CommittedReply | KnownReply) else reply
    entries = list(tell(request.body, planned))
    if request.token_id is not None:
        entries = [entry | {"token_id": request.token_id} for entry in entries]
    client = request_facts(request)
    if not isinstance(reply, CommittedReply):
        audit.changed(request.now, client, entries)
    elif held := audit.hold(entries):
        UncommittedEntries(audit, metadata, client, held, reply.offset)


class UncommittedEntries(Waiter):
    """They wait for the commit without their request: its client may go before, and it may be large."""

    __slots__ = ("_audit", "_client", "_entries", "_epoch", "_metadata", "_offset")

    def __init__(
        self, audit: Audit, metadata: "MetadataLog", client: Entry, held: list[Entry], offset: int
    ) -> None:
        """`held`: by `audit.hold`."""
        super().__init__()
        self._audit = audit
        self._metadata = metadata
        self._client = client
        self._entries = held
        self._offset = offset
        self._epoch = metadata.deciding_epoch
        self.wait_for(metadata)

    def woken(self, now: Now) -> None:
        if self._metadata.deciding_epoch != self._epoch:
            for entry in self._entries:
                if entry["result"] == ErrorCode.NONE.name:
                    entry["result"] = UNKNOWN_RESULT
        elif self._metadata.committed_offset < self._offset:
            return
        self.forget()
        self._audit.release(self._entries)
        self._audit.changed(now, self._client, self._entries)


# --- topics and settings ----------------------------------------------------------------------------------


def created_topics(body: Any, reply: Any) -> Iterable[Entry]:
    wanted = {topic.name: topic for topic in body.topics}
    for result in reply.topics:
        entry: Entry = {"change": "topic created", "topic": clipped(result.name)}
        topic = wanted.get(result.name)
        if topic is not None and topic.configs:
            entry["settings"] = settings_of(topic.configs, topic_config_keys())
        yield entry | result_of(result)


def deleted_topics(body: Any, reply: Any) -> Iterable[Entry]:
    for result in reply.responses:
        name = None if result.name is None else clipped(result.name)
        entry: Entry = {"change": "topic deleted", "topic": name}
        if name is None:
            entry["topic_id"] = bytes(result.topic_id).hex()
        yield entry | result_of(result)


def grown_topics(body: Any, reply: Any) -> Iterable[Entry]:
    counts = {topic.name: topic.count for topic in body.topics}
    for result in reply.results:
        entry = {"change": "partitions added", "topic": clipped(result.name)}
        yield entry | {"partitions": counts.get(result.name)} | result_of(result)


_RESOURCES: Final = {2: "topic", 4: "broker", 8: "broker logger", 16: "client metrics", 32: "group"}
_KEYS: Final = {2: topic_config_keys, 4: broker_config_keys, 32: group_config_keys}
_CHANGES_OF_SETTING: Final = ("set", "removed", "added", "subtracted")


def altered_configs(body: Any, reply: Any) -> Iterable[Entry]:
    wanted = {(one.resource_type, one.resource_name): one for one in body.resources}
    for result in reply.responses:
        kind = result.resource_type
        entry: Entry = {
            "change": "settings changed",
            "resource": _RESOURCES.get(kind, str(kind)),
            "name": clipped(result.resource_name),
        }
        resource = wanted.get((kind, result.resource_name))
        if resource is not None:
            keys = _KEYS[kind]() if kind in _KEYS else {}
            entry["settings"] = settings_of(resource.configs, keys)
        yield entry | result_of(result)


def settings_of(configs: Iterable[Any], keys: Any) -> dict[str, Any]:
    """Values of secrets are hidden, and so are those of keys that nobody knows, which may be secrets."""
    told: dict[str, Any] = {}
    for config in list(configs)[:SETTINGS_MAX]:
        operation = getattr(config, "config_operation", 0)
        what = _CHANGES_OF_SETTING[operation] if 0 <= operation < len(_CHANGES_OF_SETTING) else "?"
        key = keys.get(config.name)
        value: Any = None if config.value is None or what == "removed" else clipped(config.value)
        if value is not None and (key is None or key.is_sensitive):
            value = HIDDEN
        told[clipped(config.name)] = value if what == "set" else {what: value}
    return told


# --- rules, users, quotas, tokens -------------------------------------------------------------------------


def created_rules(body: Any, reply: Any) -> Iterable[Entry]:
    for one, result in zip(body.creations, reply.results, strict=False):
        rule = AclRule(
            one.resource_type,
            one.resource_name,
            one.resource_pattern_type,
            one.principal,
            one.host,
            one.operation,
            one.permission_type,
        )
        yield {"change": "rule created", "rule": clipped(str(rule))} | result_of(result)


def deleted_rules(body: Any, reply: Any) -> Iterable[Entry]:
    for which, result in zip(body.filters, reply.filter_results, strict=False):
        for one in result.matching_acls:
            rule = AclRule(
                one.resource_type,
                one.resource_name,
                one.pattern_type,
                one.principal,
                one.host,
                one.operation,
                one.permission_type,
            )
            yield {"change": "rule deleted", "rule": clipped(str(rule))} | result_of(one)
        if not result.matching_acls:
            told = filter_text(which)
            yield {"change": "rules deleted", "filter": told, "count": 0} | result_of(result)


def filter_text(which: Any) -> str:
    asked = AclFilter(
        which.resource_type_filter,
        which.resource_name_filter,
        which.pattern_type_filter,
        which.principal_filter,
        which.host_filter,
        which.operation,
        which.permission_type,
    )
    parts = (
        word(ResourceType, asked.resource_type).lower(),
        word(PatternType, asked.pattern_type).lower(),
        "any name" if asked.name is None else repr(asked.name),
        asked.principal or "anybody",
        word(Operation, asked.operation),
    )
    return clipped(" ".join(parts))


def altered_users(body: Any, reply: Any) -> Iterable[Entry]:
    results = {result.user: result_of(result) for result in reply.results}
    for change, credentials in (("password set", body.upsertions), ("password removed", body.deletions)):
        for one in credentials:
            entry: Entry = {"change": change, "user": clipped(one.name)}
            known = MECHANISMS_BY_ID.get(one.mechanism)
            entry["mechanism"] = str(one.mechanism) if known is None else known.name
            yield entry | results.get(one.name, {"result": ErrorCode.UNKNOWN_SERVER_ERROR.name})


def altered_quotas(body: Any, reply: Any) -> Iterable[Entry]:
    # by entity: one that is named twice has one result, so places in the two lists differ
    results = {entity_key(result.entity): result_of(result) for result in reply.entries}
    for entry in body.entries:
        entity = {one.entity_type: one.entity_name for one in entry.entity}
        quotas = {clipped(op.key): None if op.remove else number(op.value) for op in entry.ops}
        told = {clipped(kind): "default" if name is None else clipped(name) for kind, name in entity.items()}
        result = results.get(entity_key(entry.entity), {"result": ErrorCode.UNKNOWN_SERVER_ERROR.name})
        yield {"change": "quotas changed", "entity": told, "quotas": quotas} | result


def entity_key(parts: Iterable[Any]) -> tuple[tuple[str, str | None], ...]:
    """The same whatever the order of its parts."""
    return tuple(sorted(((one.entity_type, one.entity_name) for one in parts), key=str))


def number(value: float) -> float | str:
    """JSON has no infinity."""
    return value if isfinite(value) else str(value)


def created_token(body: Any, reply: Any) -> Iterable[Entry]:
    owner = f"{reply.principal_type}:{reply.principal_name}"
    yield {"change": "token created", "token_id": reply.token_id, "owner": clipped(owner)} | result_of(reply)


def renewed_token(body: Any, reply: Any) -> Iterable[Entry]:
    yield {"change": "token renewed", "expires_ms": reply.expiry_timestamp_ms} | result_of(reply)


def expired_token(body: Any, reply: Any) -> Iterable[Entry]:
    yield {"change": "token expired", "expires_ms": reply.expiry_timestamp_ms} | result_of(reply)


# --- the cluster ------------------------------------------------------------------------------------------


def updated_features(body: Any, reply: Any) -> Iterable[Entry]:
    for update in body.feature_updates:
        entry: Entry = {"change": "feature changed", "feature": clipped(update.feature)}
        yield entry | {"level": update.max_version_level} | result_of(reply)


def unregistered_broker(body: Any, reply: Any) -> Iterable[Entry]:
    yield {"change": "broker unregistered", "broker": body.broker_id} | result_of(reply)


def result_of(result: Any) -> Entry:
    code = result.error_code
    known = code in ErrorCode._value2member_map_
    entry: Entry = {"result": ErrorCode(code).name if known else str(code)}
    message = getattr(result, "error_message", None)
    if code and message:
        entry["message"] = clipped(message)
    return entry


CHANGES: Final[dict[int, Callable[[Any, Any], Iterable[Entry]]]] = {
    ApiKey.CREATE_TOPICS: created_topics,
    ApiKey.DELETE_TOPICS: deleted_topics,
    ApiKey.CREATE_PARTITIONS: grown_topics,
    ApiKey.CREATE_ACLS: created_rules,
    ApiKey.DELETE_ACLS: deleted_rules,
    ApiKey.ALTER_CONFIGS: altered_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: altered_configs,
    ApiKey.ALTER_CLIENT_QUOTAS: altered_quotas,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: altered_users,
    ApiKey.CREATE_DELEGATION_TOKEN: created_token,
    ApiKey.RENEW_DELEGATION_TOKEN: renewed_token,
    ApiKey.EXPIRE_DELEGATION_TOKEN: expired_token,
    ApiKey.UPDATE_FEATURES: updated_features,
    ApiKey.UNREGISTER_BROKER: unregistered_broker,
}
