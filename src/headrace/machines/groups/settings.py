"""Settings of the group coordinator: Kafka's keys and defaults, with underscores for dots."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

INT32_MAX = 2_147_483_647


class GroupConfig(NamedTuple):
    """What holds for one group of the new protocol: its own configs where it has some."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


@dataclass(slots=True)
class GroupSettings:
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = INT32_MAX

    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000

    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_min_session_timeout_ms: int = 45_000
    group_consumer_max_session_timeout_ms: int = 60_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_min_heartbeat_interval_ms: int = 5_000
    group_consumer_max_heartbeat_interval_ms: int = 15_000
    group_consumer_assignment_interval_ms: int = 1_000
    group_consumer_min_assignment_interval_ms: int = 0
    group_consumer_max_assignment_interval_ms: int = 15_000
    group_consumer_max_size: int = INT32_MAX
    group_consumer_assignors: list[str] = field(default_factory=lambda: ["uniform", "range"])
    group_consumer_migration_policy: str = "bidirectional"
    group_consumer_regex_refresh_interval_ms: int = 600_000

    # Configs of single groups: group id -> key (`consumer.session.timeout.ms`) -> value.
    overrides: dict[str, dict[str, str]] = field(default_factory=dict)

    def of_group(self, group_id: str) -> GroupConfig:
        own = self.overrides.get(group_id)
        if own is None:
            return GroupConfig(
                self.group_consumer_session_timeout_ms,
                self.group_consumer_heartbeat_interval_ms,
                self.group_consumer_assignment_interval_ms,
            )
        return GroupConfig(*(self._of_group(own, name) for name in _OVERRIDABLE))

    def _of_group(self, own: dict[str, str], name: str) -> int:
        """The group's own value, within the broker's bounds, which may have narrowed since it was set."""
        value = own.get("consumer." + name.replace("_", "."))
        if value is None:
            return int(getattr(self, f"group_consumer_{name}"))
        least = int(getattr(self, f"group_consumer_min_{name}"))
        most = int(getattr(self, f"group_consumer_max_{name}"))
        return max(least, min(int(value), most))


_OVERRIDABLE = GroupConfig._fields
