"""Lost records: found by comparing offsets, then skipped or described with their causes."""

from headrace.client.cluster import TopicPartition
from headrace.spark.loss import (
    DELETED,
    TOPIC_DELETED,
    TRUNCATED,
    Loss,
    describe_losses,
    find_losses,
    without_losses,
)
from headrace.spark.ranges import Range

A, B = TopicPartition("a", 0), TopicPartition("b", 1)


def test_what_is_there_is_not_lost():
    assert find_losses([Range(A, 5, 10)], {A: 5}, {A: 10}) == []


def test_the_beginning_was_deleted():
    ranges = [Range(A, 0, 10)]
    losses = find_losses(ranges, {A: 4}, {A: 10})
    assert losses == [Loss(A, 0, 4, DELETED)]
    assert without_losses(ranges, losses) == [Range(A, 4, 10)]


def test_the_end_was_cut_off():
    ranges = [Range(A, 0, 10)]
    losses = find_losses(ranges, {A: 0}, {A: 7})
    assert losses == [Loss(A, 7, 10, TRUNCATED)]
    assert without_losses(ranges, losses) == [Range(A, 0, 7)]


def test_all_of_it_is_gone():
    ranges = [Range(A, 0, 10), Range(B, 3, 5)]
    losses = find_losses(ranges, {A: 20}, {A: 20})
    assert [loss[:3] for loss in losses] == [(A, 0, 10), (B, 3, 5)]
    assert without_losses(ranges, losses) == []


def test_parts_of_the_same_partition_lose_what_is_theirs():
    ranges = [Range(A, 0, 5), Range(A, 5, 10)]
    losses = find_losses(ranges, {A: 6}, {A: 10})
    assert without_losses(ranges, losses) == [Range(A, 6, 10)]


def test_it_is_told_which_since_when_and_why():
    said = describe_losses(
        [Loss(A, 0, 4, DELETED)],
        config_of=lambda topic: {
            "retention.ms": "60000",
            "retention.bytes": "-1",
            "cleanup.policy": "delete",
        },
        first_ms=lambda at: 1_700_000_000_000,
    )
    assert said == (
        "Offsets 0 to 3 of partition a-0 no longer exist: deleted by retention (retention.ms is 60000) or on "
        "request; the oldest remaining record is from 2023-11-14T22:13:20.000+00:00."
    )


def test_a_topic_that_keeps_everything_lost_records_on_request():
    said = describe_losses(
        [Loss(A, 0, 1, DELETED)], config_of=lambda topic: {"retention.ms": "-1"}, first_ms=lambda at: None
    )
    assert said.endswith(
        "no longer exist: deleted on request (retention keeps everything); no records remain."
    )


def test_nobody_knows_how_much_a_deleted_topic_had():
    loss = Loss(A, 7, None, TOPIC_DELETED)
    said = describe_losses([loss], config_of=lambda topic: {}, first_ms=lambda at: None)
    assert said == (
        "All offsets from 7 on of partition a-0 no longer exist: the topic, or this partition of it, was "
        "deleted."
    )
    assert without_losses([Range(A, 7, 20)], [loss]) == []


def test_a_cut_log_is_told_as_such():
    said = describe_losses([Loss(A, 7, 10, TRUNCATED)], config_of=lambda topic: {}, first_ms=lambda at: None)
    assert said.startswith("Offsets 7 to 9 of partition a-0 no longer exist: the log ends before them")
