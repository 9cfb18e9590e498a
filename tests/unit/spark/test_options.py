"""Options as users write them: those of Spark's Kafka connector, and what is refused."""

from __future__ import annotations

import pickle  # noqa: TID251  # of our own values: Spark does it

import pytest

from headrace.base.secret import Secret, revealed
from headrace.client.cluster import TopicPartition
from headrace.client.settings.configuration import Configuration
from headrace.client.settings.keys import consumer_keys
from headrace.client.threads.range_reader import task_settings
from headrace.spark.errors import InvalidOption
from headrace.spark.formats import read_formats
from headrace.spark.options import (
    EARLIEST,
    LATEST,
    Offsets,
    OffsetSpec,
    SourceOptions,
    offsets_from_json,
    parse_offsets,
    read_options,
)
from headrace.spark.sink_options import sink_options

SERVERS = {"kafka.bootstrap.servers": "here:9092"}


def options(*, is_stream: bool = False, **given: object) -> SourceOptions:
    texts = {name.replace("__", "."): str(value) for name, value in given.items()}
    return read_options({**SERVERS, "subscribe": "a", **texts}, is_stream=is_stream)


def test_defaults_are_those_of_sparks_connector():
    batch, stream = options(), options(is_stream=True)
    assert (batch.start, batch.end) == (OffsetSpec(EARLIEST), OffsetSpec(LATEST))
    assert stream.start == OffsetSpec(LATEST)
    assert batch.fails_on_data_loss
    assert not batch.includes_headers
    assert stream.trigger_delay_max_s == 15 * 60
    assert (stream.offsets_per_trigger_max, stream.partitions_min, stream.records_per_partition_max) == (
        None,
    ) * 3


def test_read_committed_is_the_default():
    assert options().isolation_level == "read_committed"
    assert options(kafka__isolation__level="read_uncommitted").isolation_level == "read_uncommitted"


def test_names_know_no_case_and_kafkas_settings_lose_their_prefix():
    found = read_options(
        {"KAFKA.bootstrap.servers": "here:9092", "SUBSCRIBE": "a, b,a", "MinPartitions": "3"}, is_stream=False
    )
    assert found.topics == ("a", "b")
    assert found.partitions_min == 3
    assert found.settings == {"bootstrap.servers": "here:9092"}


def test_a_path_is_a_topic():
    assert read_options({**SERVERS, "path": "clicks"}, is_stream=False).topics == ("clicks",)


def test_the_group_is_for_progress_and_not_for_tasks():
    found = options(kafka__group__id="mine", is_stream=True)
    assert found.group_id == "mine"
    assert "group.id" not in found.settings


def test_only_administrators_settings_go_to_the_administrator():
    found = options(kafka__fetch__min__bytes=1, kafka__client__id="me")
    assert found.admin_settings == {"bootstrap.servers": "here:9092", "client.id": "me"}


def test_times_come_before_offsets():
    found = options(
        startingTimestamp=5, startingOffsets="earliest", startingOffsetsByTimestamp='{"a": {"0": 7}}'
    )
    assert found.start == OffsetSpec(5, None, True, False)
    found = options(startingOffsets="earliest", startingOffsetsByTimestamp='{"a": {"0": 7}}')
    assert found.start.each == Offsets({TopicPartition("a", 0): 7})
    assert found.start.is_time
    assert not found.start.is_late_allowed


@pytest.mark.parametrize(
    ("text", "size"), [("1000", 1000), ("64m", 64 << 20), ("1g", 1 << 30), ("8KB", 8192), ("2 MiB", 2 << 20)]
)
def test_sizes(text, size):
    assert options(maxBytesPerPartition=text).bytes_per_partition_max == size


@pytest.mark.parametrize(("text", "seconds"), [("15m", 900), ("30s", 30), ("1500", 1.5), ("2 h", 7200)])
def test_durations(text, seconds):
    assert options(maxTriggerDelay=text, is_stream=True).trigger_delay_max_s == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"minPartitions": "0"}, "minPartitions=0: must be at least 1"),
        ({"minPartitions": "many"}, "minPartitions=many: must be a whole number"),
        ({"maxBytesPerPartition": "64x"}, "must be a size"),
        ({"failOnDataLoss": "perhaps"}, "true or false"),
        ({"maxTriggerDelay": "soon"}, "must be a duration"),
        ({"startingOffsets": "lates"}, "not JSON"),
        ({"startingOffsets": "[1]"}, "JSON object"),
        ({"startingOffsets": '{"a": 1}'}, 'must be an object such as {"0": 23}'),
        ({"startingOffsets": '{"a": {"x": 1}}'}, "is not a partition"),
        ({"startingOffsets": '{"a": {"0": -3}}'}, "must be an offset"),
        ({"startingOffsets": '{"a": {"0": true}}'}, "must be a whole number"),
        ({"startingOffsets": '{"a": {"0": -1}}'}, "cannot be latest"),
        ({"endingOffsets": "earliest"}, "cannot be earliest"),
        ({"startingTimestamp": "yesterday"}, "milliseconds"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "error or latest"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "must not be larger than"),
        ({"kafka.enable.auto.commit": "true"}, "cannot be set in Spark"),
        ({"subscribePattern": "a.*"}, "subscribe and subscribePattern are given"),
        ({"maxOffsetPerTrigger": "5"}, "did you mean maxOffsetsPerTrigger"),
    ],
)
def test_nonsense_is_refused(given, said):
    with pytest.raises(InvalidOption, match=said):
        read_options({**SERVERS, "subscribe": "a", **given}, is_stream=False)


def test_a_stream_has_no_end():
    with pytest.raises(InvalidOption, match="a stream has no end"):
        options(endingOffsets="latest", is_stream=True)


def test_servers_and_topics_must_be_given():
    with pytest.raises(InvalidOption, match=r"kafka\.bootstrap\.servers"):
        read_options({"subscribe": "a"}, is_stream=False)
    for wrong in (
        {"subscribe": " , "},
        {"subscribePattern": "("},
        {"assign": "{}"},
        {"assign": '{"a": "0"}'},
    ):
        with pytest.raises(InvalidOption):
            read_options({**SERVERS, **wrong}, is_stream=False)


def test_assigned_partitions():
    found = read_options({**SERVERS, "assign": '{"b": [1], "a": [2, 0]}'}, is_stream=False)
    assert found.assigned == (TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1))


def test_offsets_are_the_same_text_however_they_were_found():
    one, two = TopicPartition("a", 10), TopicPartition("a", 9)
    text = Offsets({one: 1, two: 2}, {"a": "id-of-a", "gone": "x"}).to_json()
    assert list(text["a"].items()) == [("9", 2), ("10", 1), ("id", "id-of-a")]
    assert offsets_from_json(text) == Offsets({two: 2, one: 1}, {"a": "id-of-a"})
    assert parse_offsets('{"a": {"9": 2, "10": 1}}', "x") == Offsets({two: 2, one: 1})


def test_secrets_do_not_show_themselves_in_options_and_tasks() -> None:
    """Spark prints its objects in plans and in traces of failed tasks. Tasks still have the passwords."""
    planted = "planted-s3cret"
    given = {
        "kafka.bootstrap.servers": "localhost:9092",
        "kafka.sasl.password": planted,
        "kafka.sasl.jaas.config": f'x.PlainLoginModule required username="a" password="{planted}";',
        "kafka.ssl.key.password": planted,
        "subscribe": "t",
        "valueFormat": "json",
        "schema.registry.url": f"http://user:{planted}@localhost:8081",
        "schema.registry.user": "user",
        "schema.registry.password": planted,
    }
    source = read_options(given, is_stream=False)
    formats = read_formats(source)
    task = task_settings(source.settings, source.isolation_level)
    without = {name: text for name, text in given.items() if name != "subscribe"}
    sink = sink_options(without | {"topic": "t"}, is_stream=True, overwrite=False)
    for value in (source, source.admin_settings, formats, task, sink, sink.admin_settings):
        assert planted not in f"{value} {value!r}"
    for settings in (task, sink.settings):
        again = pickle.loads(pickle.dumps(settings))
        assert revealed(again["sasl.password"]) == planted
        assert Configuration(consumer_keys(), task).text("sasl.password") == planted


@pytest.mark.parametrize(
    ("spelling", "name", "is_secret"),
    [
        ("sasl.mechanisms", "sasl.mechanism", False),
        ("sasl_password", "sasl.password", True),
        (
            "sasl.oauthbearer.client.credentials.client.secret",
            "sasl.oauthbearer.client.secret",
            True,
        ),
        ("ssl.key.pem", "ssl.keystore.key", True),
    ],
)
def test_names_of_other_clients_reach_every_client_and_are_as_secret(spelling, name, is_secret):
    """The driver's admin client used to lose them, and passwords showed themselves."""
    given = {**SERVERS, f"kafka.{spelling}": "planted"}
    source = read_options({**given, "subscribe": "a"}, is_stream=True)
    sink = sink_options({**given, "topic": "a"}, is_stream=True, overwrite=False)
    for settings in (source.settings, source.admin_settings, sink.settings, sink.admin_settings):
        value = settings[name]
        assert isinstance(value, str | Secret)
        assert revealed(value) == "planted"
        assert ("planted" in repr(settings)) is not is_secret
    with pytest.raises(InvalidOption, match="is set twice"):
        read_options({**given, "subscribe": "a", f"kafka.{name}": "again"}, is_stream=True)
