"""Decision about quotas of users, client ids and addresses, and the answer about those that there are.

An entity changes completely or not at all. One that a request names twice is refused: nobody could tell which
change counts. Kafka makes the first one in that case, and answers with an error all the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import ip_address

from headrace.base.numbers import INT32_MAX
from headrace.machines.metadata.controller.decision import (
    RECORDS_MAX,
    TOO_LARGE,
    MetadataDecision,
    Refusal,
)
from headrace.machines.metadata.image import ClusterImage
from headrace.machines.metadata.security_image import (
    CLIENT_ID,
    IP,
    USER,
    ClientQuotaEntity,
    SecurityImage,
    entity_order,
    quota_record,
)
from headrace.protocol.errors import ErrorCode
from headrace.protocol.notation import Data

INT64_MAX = 2**63 - 1
ROUNDING = 1e-6  # a value that is a whole number but for this is one

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

# Whole numbers with their bounds, and None where a fraction is fine.
_OF_CLIENTS: dict[str, tuple[int, str] | None] = {
    PRODUCER_BYTE_RATE: (INT64_MAX, "a LONG"),
    CONSUMER_BYTE_RATE: (INT64_MAX, "a LONG"),
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
_OF_ADDRESSES: dict[str, tuple[int, str] | None] = {CONNECTION_CREATION_RATE: (INT32_MAX, "an INT")}

# Kinds and names as messages have them: None is the default.
Parts = tuple[tuple[str, str | None], ...]


@dataclass(slots=True)
class QuotaChange:
    entity: Parts
    changes: list[tuple[str, float | None]]  # keys and their values; None removes the quota


@dataclass(slots=True)
class AlteredQuotas:
    entity: Parts
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


def alter_quotas(
    image: ClusterImage, wanted: Sequence[QuotaChange], *, validate_only: bool = False
) -> MetadataDecision[list[AlteredQuotas]]:
    """An answer for each entity. Refusal: too many changes."""
    asked: dict[Parts, list[QuotaChange]] = {}
    for change in wanted:
        asked.setdefault(tuple(sorted(change.entity, key=lambda part: part[0])), []).append(change)
    records: list[Data] = []
    altered: list[AlteredQuotas] = []
    for changes in asked.values():
        entity = changes[0].entity
        try:
            if len(changes) > 1:
                raise _invalid(f"Ignoring duplicate entity {_text(entity)}")
            records += _records(image.security, changes[0])
        except Refusal as refusal:
            altered.append(AlteredQuotas(entity, refusal.code, refusal.message))
            continue
        altered.append(AlteredQuotas(entity))
        if len(records) > RECORDS_MAX:
            raise Refusal(ErrorCode.POLICY_VIOLATION, TOO_LARGE)
    return MetadataDecision(altered, [] if validate_only else records)


def _records(security: SecurityImage, wanted: QuotaChange) -> list[Data]:
    entity = _checked(wanted.entity)
    keys = _OF_CLIENTS if entity.ip is None else _OF_ADDRESSES
    present = security.quotas.get(entity, {})
    values: dict[str, float | None] = {}
    for key, value in wanted.changes:
        if key in values:
            told = f"Duplicate quota key {key} not updating quota for this entity {_text(wanted.entity)}"
            raise _invalid(told)
        values[key] = value
    for key, value in values.items():
        if value is not None:
            _check_value(keys, key, value)
    return [
        quota_record(entity, key, value)
        for key, value in values.items()
        if present.get(key) != value  # a quota that is not there need not be removed
    ]


def _checked(parts: Parts) -> ClientQuotaEntity:
    if not parts:
        raise _invalid("Invalid empty client quota entity")
    names: dict[str, str] = {}
    for kind, name in parts:
        if kind in names:
            raise _invalid(f"Invalid client quota entity, duplicate entity entry {kind}")
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
        names[kind] = name or ""
    if IP in names:
        if len(names) > 1:
            # as Kafka writes it
            raise _invalid(
                "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
            )
        _check_address(names[IP])
    return ClientQuotaEntity(names.get(USER), names.get(CLIENT_ID), names.get(IP))


def _check_address(address: str) -> None:
    """Names of hosts, which Kafka resolves, are not taken: a decision does not ask the network."""
    if not address:
        return
    try:
        ip_address(address)
    except ValueError:
        raise _invalid(f"{address} is not a valid IP or resolvable host.") from None


def _check_value(keys: dict[str, tuple[int, str] | None], key: str, value: float) -> None:
    if key not in keys:
        raise _invalid(f"Invalid configuration key {key}")
    if not value > 0:  # nor NaN
        raise _invalid(f"Quota {key} must be greater than 0")
    bound = keys[key]
    if bound is None:
        return
    if value > bound[0]:
        raise _invalid(f"Proposed value for {key} is too large for {bound[1]}.")
    if value % 1.0 > ROUNDING:
        raise _invalid(f"{key} cannot be a fractional value.")


def _text(parts: Parts) -> str:
    """As Kafka writes an entity."""
    written = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in sorted(parts, key=str))
    return f"ClientQuotaEntity(entries={{{written}}})"


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, message)


# --- descriptions -----------------------------------------------------------------------------------------


class Match(IntEnum):
    EXACT = 0  # this name
    DEFAULT = 1  # the default
    SPECIFIED = 2  # any name, and the default


@dataclass(slots=True)
class QuotaFilter:
    kind: str
    match: int
    name: str | None  # for EXACT alone

    def matches(self, parts: Mapping[str, str | None]) -> bool:
        return self.kind in parts and (self.match == Match.SPECIFIED or parts[self.kind] == self.name)


def find_quotas(
    security: SecurityImage, filters: Sequence[QuotaFilter], *, strict: bool
) -> list[tuple[ClientQuotaEntity, dict[str, float]]]:
    """Those of entities that all filters match; `strict`: and that have no other kinds in them.

    Refusal: a filter is not valid.
    """
    _check_filters(filters)
    found = []
    for entity in sorted(security.quotas, key=entity_order):
        parts = dict(entity.parts())
        # no entity is empty: a strict filter for nothing finds nothing
        if (not strict or len(parts) == len(filters)) and all(one.matches(parts) for one in filters):
            found.append((entity, security.quotas[entity]))
    return found


def _check_filters(filters: Sequence[QuotaFilter]) -> None:
    kinds: set[str] = set()
    for one in filters:
        if not one.kind:
            raise _invalid("Invalid empty entity type.")
        if one.kind in kinds:
            raise _invalid(f"Entity type {one.kind} cannot appear more than once in the filter.")
        if one.kind not in (USER, CLIENT_ID, IP):
            raise Refusal(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {one.kind}")
        if one.match not in Match._value2member_map_:
            raise _invalid(f"Unknown match type {one.match}")
        if one.match == Match.EXACT and one.name is None:
            raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if one.match != Match.EXACT and one.name is not None:
            kind_of_match = f"MATCH_TYPE_{Match(one.match).name}"
            raise _invalid(f"Request specified {kind_of_match}, but also specified a match string.")
        kinds.add(one.kind)
    if IP in kinds and len(kinds) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used with "
            "user or clientId filter component."
        )
