"""Topics and partitions that come while a stream runs or between its runs, and progress that others see."""

from __future__ import annotations

import headrace
from harness.spark_queries import check_runs
from harness.wait import eventually

RUN_S = 120


def everything(count, partitions=(0,)):
    return [(partition, offset) for partition in partitions for offset in range(count)]


# --- what comes later ------------------------------------------------------------------------------------


def test_a_topic_that_matches_later_is_found(spark, stream, going_on, new_topic, fill):
    first = new_topic(prefix="matching")
    pattern = f"matching-.*|{first}x"
    fill(first, 2)
    query = going_on(stream(subscribePattern=pattern, startingOffsets="latest"))

    def counts():
        check_runs(query)
        found = spark.sql(f"select topic, count(*) as n from {query.name} group by topic").collect()
        return {row.topic: row.n for row in found}

    eventually(lambda: query.lastProgress is not None, True, timeout_s=RUN_S)  # it has begun
    fill(first, 3, first=2)
    eventually(counts, {first: 3}, timeout_s=RUN_S)
    second, other = new_topic(2, prefix="matching"), new_topic(prefix="no-matching")
    fill(second, 4, (0, 1))
    fill(other, 1)
    eventually(counts, {first: 3, second: 8}, timeout_s=RUN_S)  # from its beginning


def test_partitions_that_come_while_a_stream_runs(spark, stream, going_on, new_topic, fill, admin, servers):
    topic = new_topic()
    fill(topic, 2)
    query = going_on(stream(topic, startingOffsets="earliest"))

    def rows():
        check_runs(query)
        return sorted(map(tuple, spark.sql(f"select partition, offset from {query.name}").collect()))

    eventually(rows, everything(2), timeout_s=RUN_S)
    admin.create_partitions({topic: 3})
    with headrace.Producer(servers) as producer:
        for number in range(6):
            producer.send(topic, b"value", partition=number % 3)
    expected = sorted([*everything(4), *everything(2, (1, 2))])
    eventually(rows, expected, timeout_s=RUN_S)


def test_partitions_that_came_between_two_runs(stream, run, new_topic, fill, admin, servers):
    topic = new_topic()
    fill(topic, 5)
    frame = stream(topic, startingOffsets="latest")
    assert run(frame) == ([], [])
    admin.create_partitions({topic: 3})
    with headrace.Producer(servers) as producer:  # one that has not heard of the topic before
        for number in range(8):
            producer.send(topic, b"value", partition=1 + number % 2)
    assert run(frame)[0] == everything(4, (1, 2))
    assert run(frame)[1] == []


def test_a_run_ends_though_partitions_came_while_a_batch_was_open(
    stream, run, new_topic, fill, admin, tmp_path
):
    """The driver died after it wrote down what to read; before the restart the topic grew."""
    topic = new_topic()
    fill(topic, 6)
    frame = stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger=4)
    assert run(frame) == (everything(6), [4, 2])
    checkpoint = tmp_path / "run.checkpoint"
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink()
    admin.create_partitions({topic: 4})
    fill(topic, 1, first=6)
    assert run(frame) == (everything(7), [1])
    assert run(frame)[1] == []


# --- progress --------------------------------------------------------------------------------------------


def test_progress_is_that_of_a_group(stream, run, new_topic, fill, admin):
    topic = new_topic(2)
    group = f"group of {topic}"
    frame = stream(topic, startingOffsets="earliest", kafka__group__id=group)
    fill(topic, 10, (0, 1))
    run(frame)

    def lag():
        return {one.at.partition: (one.committed, one.lag) for one in admin.group_lag(group)}

    assert lag() == {0: (10, 0), 1: (10, 0)}, "also of the last batch"
    fill(topic, 5, (1,), first=10)
    assert lag() == {0: (10, 0), 1: (10, 5)}, "while it does not run it falls behind"
    run(frame)
    assert lag() == {0: (10, 0), 1: (15, 0)}, "after a restart it is the same group"


def test_lag_is_right_while_a_stream_runs(spark, stream, going_on, new_topic, fill, admin):
    topic = new_topic()
    group = f"group of {topic}"
    fill(topic, 3)
    query = going_on(stream(topic, startingOffsets="earliest", kafka__group__id=group))

    def progress():
        check_runs(query)
        return [(one.committed, one.lag) for one in lag_of(admin, group)]

    for count in (3, 6, 9):
        eventually(progress, [(count, 0)], RUN_S)
        fill(topic, 3, first=count)


def lag_of(admin, group):
    """Nobody has heard of a group before its stream's first batch."""
    return admin.group_lag(group) if group in {one.group for one in admin.list_groups()} else []


def test_a_group_without_a_name_begins_with_a_prefix(stream, run, new_topic, fill, admin):
    topic = new_topic()
    fill(topic, 4)
    run(stream(topic, startingOffsets="earliest", groupIdPrefix=f"dashboard-{topic}"), "named")
    run(stream(topic, startingOffsets="earliest"), "unnamed")
    groups = [one.group for one in admin.list_groups()]
    (mine,) = [group for group in groups if group.startswith(f"dashboard-{topic}-")]
    assert [one.committed for one in admin.group_lag(mine)] == [4]
    assert any(group.startswith("spark-headrace-source-") for group in groups)
