"""Tenants: names that begin topics, before the first dot, and how many partitions each may have.

The setting `headrace.tenants` lists them as `blue:100`, or `blue` without a limit. The limit holds when
topics and partitions are created: a limit that is set too late, or lowered, deletes nothing.
"""

import re
from collections.abc import Iterable, Mapping

from headrace.base.numbers import INT32_MAX
from headrace.machines.configs.values import InvalidConfig
from headrace.machines.metadata.controller.decision import Refusal
from headrace.machines.metadata.image import ClusterImage
from headrace.protocol.errors import ErrorCode

TENANTS_KEY = "headrace.tenants"
SEPARATOR = "."  # between a tenant and the rest of a name
# No underscore: names of topics collide where they differ in dots and underscores alone, so the tenant `a`
# could take names from a tenant `a_b`.
_ENTRY = re.compile(r"([A-Za-z0-9-]{1,100})(?::([0-9]{1,10}))?")


def parse_tenants(entries: Iterable[str]) -> dict[str, int | None]:
    """Each tenant with the number of partitions it may have; None: without a limit. InvalidConfig.

    Of two limits of a tenant the lower one counts: so a limit can be changed without a moment without one.
    """
    tenants: dict[str, int | None] = {}
    for entry in entries:
        found = _ENTRY.fullmatch(entry.strip())
        if found is None or (found[2] is not None and int(found[2]) > INT32_MAX):
            raise InvalidConfig(
                f"Invalid value {entry} for configuration {TENANTS_KEY}: expected NAME or NAME:PARTITIONS, "
                "with letters, digits and - in the name"
            )
        name, limit = found[1], None if found[2] is None else int(found[2])
        before = tenants.get(name)
        tenants[name] = limit if before is None else before if limit is None else min(before, limit)
    return tenants


def tenant_of(topic: str, tenants: Mapping[str, object]) -> str | None:
    name, dot, _ = topic.partition(SEPARATOR)
    return name if dot and name in tenants else None


class TenantBudgets:
    """How many partitions each tenant may still create, within one request."""

    def __init__(self, image: ClusterImage, tenants: Mapping[str, int | None]) -> None:
        self._limits = {name: limit for name, limit in tenants.items() if limit is not None}
        self._present: dict[str, int] | None = None
        self._image = image

    def check(self, topic: str, partitions: int) -> None:
        """Refusal if the tenant of the topic would have too many."""
        tenant = tenant_of(topic, self._limits)
        if tenant is None:
            return
        present = self._counted()
        limit = self._limits[tenant]
        if present[tenant] + partitions > limit:
            raise Refusal(
                ErrorCode.POLICY_VIOLATION,
                f"Tenant {tenant} may have {limit} partitions and has {present[tenant]}: {partitions} more "
                "are too many.",
            )

    def take(self, topic: str, partitions: int) -> None:
        """They are created."""
        tenant = tenant_of(topic, self._limits)
        if tenant is not None:
            self._counted()[tenant] += partitions

    def _counted(self) -> dict[str, int]:
        if self._present is None:
            self._present = dict.fromkeys(self._limits, 0)
            for name, topic in self._image.topics.items():
                tenant = tenant_of(name, self._limits)
                if tenant is not None:
                    self._present[tenant] += len(topic.partitions)
        return self._present
