"""What is in force for a topic, layer over layer."""

import pytest

from headrace.machines.configs.topic import (
    broker_value,
    check_topic_overrides,
    effective_topic_config,
    topic_defaults,
)
from headrace.machines.configs.values import InvalidConfig

HOUR_MS = 3_600_000


def test_the_defaults_are_kafkas() -> None:
    defaults = topic_defaults(())
    assert defaults["retention.ms"] == 168 * HOUR_MS
    assert defaults["segment.ms"] == 168 * HOUR_MS
    assert defaults["segment.jitter.ms"] == 0
    assert defaults["flush.ms"] == 2**63 - 1
    assert defaults["max.message.bytes"] == 1_048_588
    assert defaults["cleanup.policy"] == ["delete"]
    assert defaults["message.timestamp.after.max.ms"] == HOUR_MS


def test_the_finer_unit_wins_and_the_more_specific_layer_wins() -> None:
    file = {"log.retention.hours": "5"}
    assert topic_defaults((file,))["retention.ms"] == 5 * HOUR_MS
    assert topic_defaults((file | {"log.retention.minutes": "7"},))["retention.ms"] == 7 * 60_000
    assert topic_defaults((file | {"log.retention.ms": "9"},))["retention.ms"] == 9
    assert topic_defaults(({"log.retention.ms": "3"}, file))["retention.ms"] == 3
    assert topic_defaults(({"log.retention.hours": "-1"},))["retention.ms"] == -1


def test_flush_interval_falls_back_to_the_scheduler() -> None:
    assert broker_value("log.flush.interval.ms", ({"log.flush.scheduler.interval.ms": "2000"},)) == 2000


def test_overrides_lie_on_top_and_unknown_ones_are_ignored_once_written() -> None:
    defaults = topic_defaults(())
    values = effective_topic_config(defaults, {"retention.ms": "5", "from.the.future": "1"})
    assert values["retention.ms"] == 5
    assert "from.the.future" not in values
    assert defaults["retention.ms"] != 5


def test_tests_may_have_tiny_segments() -> None:
    values = effective_topic_config(topic_defaults(()), {"internal.segment.bytes": "100"})
    assert values["segment.bytes"] == 100


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ({"bogus": "1"}, "Unknown topic config name: bogus"),
        ({"retntion.ms": "1"}, "did you mean retention.ms?"),
        ({"remote.storage.enable": "true"}, "Tiered Storage"),
        ({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"}, "min.compaction.lag.ms (6) >"),
    ],
)
def test_refused(overrides: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        check_topic_overrides(overrides)
    assert says in str(raised.value)


def test_a_conflict_with_the_brokers_default_is_refused_too() -> None:
    defaults = topic_defaults(({"log.cleaner.max.compaction.lag.ms": "5"},))
    with pytest.raises(InvalidConfig):
        check_topic_overrides({"min.compaction.lag.ms": "6"}, defaults)
    check_topic_overrides({"min.compaction.lag.ms": "5"}, defaults)
