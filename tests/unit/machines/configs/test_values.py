"""A setting's text becomes a value or a refusal that says what would be right."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.machines.configs.definition import ConfigKey, broker_config_keys, topic_config_keys
from headrace.machines.configs.values import (
    InvalidConfig,
    appended,
    closest,
    parse_list,
    parse_value,
    subtracted,
    unknown_key,
)

TOPIC = topic_config_keys()


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", "-1", -1),
        ("retention.ms", " 77 ", 77),
        ("preallocate", "TRUE", True),
        ("min.cleanable.dirty.ratio", "0.25", 0.25),
        ("cleanup.policy", "compact, delete", ["compact", "delete"]),
        ("cleanup.policy", "", []),
        ("compression.type", "zstd", "zstd"),
        ("compression.gzip.level", "-1", -1),
        ("leader.replication.throttled.replicas", "*", ["*"]),
        ("leader.replication.throttled.replicas", "0:1,1:2", ["0:1", "1:2"]),
        ("flush.ms", "9223372036854775807", 2**63 - 1),
    ],
)
def test_right_values(name: str, text: str, value: object) -> None:
    assert parse_value(TOPIC[name], text) == value


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        (
            "retention.ms",
            "abc",
            "Invalid value abc for configuration retention.ms: Not a number of type LONG",
        ),
        ("retention.ms", "", "Not a number of type LONG"),
        ("retention.ms", "1e3", "Not a number"),
        ("retention.ms", "٣", "Not a number"),
        ("retention.ms", "-5", "Value must be at least -1"),
        ("segment.bytes", "99999999999", "Not a number of type INT"),
        ("segment.bytes", "10", "Value must be at least 1048576"),
        ("cleanup.policy", "zap", "String must be one of: compact, delete"),
        ("cleanup.policy", "compact,", "values must not be empty"),
        ("compression.type", "foo", "uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("preallocate", "maybe", "Expected value to be either true or false"),
        ("min.cleanable.dirty.ratio", "2", "Value must be no more than 1"),
        ("min.cleanable.dirty.ratio", "nan", "Value must be"),
        ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
        ("leader.replication.throttled.replicas", "abc", "partition:broker pairs"),
    ],
)
def test_wrong_values_are_refused_with_what_is_allowed(name: str, text: str, says: str) -> None:
    with pytest.raises(InvalidConfig, match=r".*") as raised:
        parse_value(TOPIC[name], text)
    assert says in str(raised.value)
    assert name in str(raised.value)


def test_a_huge_number_is_refused_without_being_read() -> None:
    with pytest.raises(InvalidConfig):
        parse_value(TOPIC["retention.ms"], "9" * 10_000_000)


def test_a_secret_is_not_repeated_in_its_refusal() -> None:
    key = ConfigKey(**(broker_config_keys()["ssl.key.password"]._asdict() | {"allowed": "{a}"}))
    with pytest.raises(InvalidConfig) as raised:
        parse_value(key, "hunter2")
    assert "hunter2" not in str(raised.value)


def test_a_misspelt_key_gets_a_suggestion() -> None:
    assert closest("retention.m", TOPIC) == "retention.ms"
    assert closest("cleanup_policy", TOPIC) == "cleanup.policy"
    assert closest("xyzzy", TOPIC) is None
    assert "did you mean retention.ms?" in str(unknown_key("topic", "retntion.ms", TOPIC))


def test_append_and_subtract() -> None:
    assert appended("delete", "compact") == "delete,compact"
    assert appended("delete", "delete") == "delete"
    assert appended(None, "a,b") == "a,b"
    assert subtracted("delete,compact", "delete") == "compact"
    assert subtracted("delete", "zap") == "delete"
    assert subtracted("delete", "delete") == ""


words = st.lists(st.sampled_from(["a", "b", "c", "d"]), unique=True).map(",".join)


@settings(max_examples=100, deadline=None)
@given(words, words)
def test_subtracting_what_was_appended_leaves_nothing_of_it(before: str, added: str) -> None:
    after = parse_list(subtracted(appended(before, added), added))
    assert set(after) == set(parse_list(before)) - set(parse_list(added))


@pytest.mark.parametrize("keys", [topic_config_keys(), broker_config_keys()], ids=["topic", "broker"])
def test_every_default_is_allowed_by_its_own_key(keys: dict[str, ConfigKey]) -> None:
    for key in keys.values():
        assert (parse_value(key, key.default) is None) == (key.default is None), key.name


@pytest.mark.parametrize("keys", [topic_config_keys(), broker_config_keys()], ids=["topic", "broker"])
def test_every_key_is_documented(keys: dict[str, ConfigKey]) -> None:
    for key in keys.values():
        assert key.doc.endswith((".", ")")), key.name
        assert len(key.doc) > 20, key.name


def test_synonyms_are_broker_keys_of_the_same_type() -> None:
    brokers = broker_config_keys()
    for key in TOPIC.values():
        for synonym in key.synonyms[:1]:
            assert brokers[synonym].type == key.type, key.name
