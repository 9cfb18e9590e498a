"""Quotas of users, client ids and addresses: describe and alter them."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from headrace.client.admin.operation import (
    ANY,
    CONTROLLER,
    Ask,
    Operation,
    Outcome,
    Sent,
    ask_all,
    ask_one,
    check,
    failed,
)
from headrace.protocol.messages import alter_client_quotas as altering
from headrace.protocol.messages import describe_client_quotas as describing

# As a name: whoever has no quota of his own. Kafka's names are never empty.
EVERYBODY_ELSE: Final = ""

_EXACT, _DEFAULT = 0, 1
_KINDS = {"user": "user", "client_id": "client-id", "ip": "ip"}
_FIELDS = {kind: field for field, kind in _KINDS.items()}


class QuotaEntity(NamedTuple):
    """Whom a quota limits: a user, a client id, both together, or an address; "" is everybody else.

    >>> print(QuotaEntity(user="ada", client_id=""))
    user 'ada', default client-id
    """

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    def __str__(self) -> str:
        return ", ".join(
            f"{kind} {name!r}" if name else f"default {kind}" for kind, name in self.parts().items()
        )

    def parts(self) -> dict[str, str]:
        """By Kafka's names of the kinds; those that are given."""
        given = {_KINDS[field]: name for field, name in self._asdict().items()}
        return {kind: name for kind, name in given.items() if name is not None}


def describe_quotas(which: QuotaEntity | None = None) -> Operation[dict[QuotaEntity, dict[str, float]]]:
    """The quotas of exactly that entity, or all, by Kafka's keys as `producer_byte_rate`.

    >>> admin.describe_quotas(QuotaEntity(user="ada"))  # doctest: +SKIP
    """
    components = [
        describing.ComponentData(
            entity_type=kind, match_type=_EXACT if name else _DEFAULT, match=name or None
        )
        for kind, name in (which.parts() if which is not None else {}).items()
    ]
    request = describing.DescribeClientQuotasRequest(components=components, strict=which is not None)

    def read(answer: Any) -> dict[QuotaEntity, dict[str, float]]:
        check(answer.error_code, answer.error_message, subject="quotas")
        return {
            _entity(told.entity): {one.key: one.value for one in told.values} for told in answer.entries or ()
        }

    return (yield from ask_one("describing quotas", ANY, lambda _: request, read))


def alter_quotas(
    changes: Mapping[QuotaEntity, Mapping[str, float | None]], *, validate_only: bool = False
) -> Operation[None]:
    """Sets quotas, or takes them away with None; keys that are not named keep their values.

    >>> admin.alter_quotas({QuotaEntity(user="ada"): {"producer_byte_rate": 1e6}})  # doctest: +SKIP
    """

    def make(entities: list[QuotaEntity], _: int) -> altering.AlterClientQuotasRequest:
        return altering.AlterClientQuotasRequest(
            entries=[
                altering.EntryData(
                    entity=[
                        altering.EntityData(entity_type=kind, entity_name=name or None)
                        for kind, name in entity.parts().items()
                    ],
                    ops=[
                        altering.OpData(key=key, value=value or 0.0, remove=value is None)
                        for key, value in changes[entity].items()
                    ],
                )
                for entity in entities
            ],
            validate_only=validate_only,
        )

    def read(answer: Any, _: Sent[QuotaEntity]) -> Outcome[QuotaEntity, bool]:
        outcome: Outcome[QuotaEntity, bool] = {}
        for told in answer.entries:
            entity = _entity(told.entity)
            outcome[entity] = failed(told.error_code, told.error_message, subject=str(entity)) or True
        return outcome

    yield from ask_all(Ask("changing quotas", dict.fromkeys(changes, CONTROLLER), make, read))


def _entity(told: list[Any]) -> QuotaEntity:
    """Kinds that we do not know are left out."""
    names = {_FIELDS[one.entity_type]: one.entity_name or "" for one in told if one.entity_type in _FIELDS}
    return QuotaEntity(**names)
