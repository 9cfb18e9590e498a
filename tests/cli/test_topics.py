"""`headrace topic`, `config` and `cluster` against a broker."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from harness.wait import eventually


def test_the_life_of_a_topic(headrace: Any) -> None:
    (made,) = headrace("topic", "create", "life", "-p", "3", "-c", "retention.ms=3600000", "--json").json
    assert (made["name"], made["partitions"], made["replication_factor"], made["created"]) == (
        "life",
        3,
        1,
        True,
    )

    assert "life" in headrace("topic", "list").lines
    (described,) = headrace("topic", "describe", "life", "--json").json
    assert described["id"] == made["id"]
    assert described["config"] == {"retention.ms": "3600000"}
    assert [(p["partition"], p["start"], p["end"]) for p in described["partitions"]] == [
        (0, 0, 0),
        (1, 0, 0),
        (2, 0, 0),
    ]

    grown = headrace(
        "topic", "alter", "life", "-p", "5", "-c", "max.message.bytes=2000", "--unset", "retention.ms"
    )
    assert grown.lines == ["altered life"]
    assert grown.err.startswith("Warning: life had 3 partitions and now has 5: new records with a key may go")
    assert headrace("topic", "alter", "life", "-c", "max.message.bytes=2000").err == ""
    (altered,) = headrace("topic", "describe", "life", "--json").json
    assert len(altered["partitions"]) == 5
    assert altered["config"] == {"max.message.bytes": "2000"}

    grown = headrace("topic", "alter", "life", "-p", "6", "--json")
    assert json.loads(grown.err)["warning"].startswith("life had 5 partitions and now has 6: ")

    assert headrace("topic", "delete", "life", "--yes").lines == ["deleted life"]
    assert "life" not in headrace("topic", "list").lines


def test_a_name_that_is_taken(headrace: Any, topic: str) -> None:
    refused = headrace.attempt("topic", "create", topic)
    assert refused.code == 1
    assert "TOPIC_ALREADY_EXISTS" in refused.err
    assert "--if-not-exists" in refused.err
    (kept,) = headrace("topic", "create", topic, "--if-not-exists", "--json").json
    assert (kept["created"], kept["partitions"]) == (False, 2)


def test_what_was_done_before_an_error_is_told(inside: Any) -> None:
    half = inside.attempt("topic", "create", "first", "no/slash", "never", "--json")
    assert (half.code, json.loads(half.err)["error"]) == (1, "INVALID_TOPIC_EXCEPTION")
    assert [one["name"] for one in half.json] == ["first"]
    nothing = inside.attempt("topic", "create", "no/slash", "--json")
    assert (nothing.code, nothing.out) == (1, b"")


def test_names_and_numbers_that_the_broker_refuses(headrace: Any, topic: str) -> None:
    for arguments, named in [
        (("create", "no/slash"), "INVALID_TOPIC_EXCEPTION"),
        (("create", "new", "-r", "3"), "INVALID_REPLICATION_FACTOR"),
        (("create", "new", "-c", "no.such.key=1"), "INVALID_CONFIG"),
        (("create", "new", "-c", "retention.ms=-5"), "INVALID_CONFIG"),
        (("alter", topic, "-p", "1"), "INVALID_PARTITIONS"),
    ]:
        refused = headrace.attempt("topic", *arguments)
        assert (refused.code, named in refused.err) == (1, True), (arguments, refused.err)
        assert len(refused.err.splitlines()) == 2, "one sentence, and what to do"


def test_a_topic_that_is_not_there(headrace: Any) -> None:
    for arguments in [("describe", "nope"), ("delete", "nope", "-y"), ("alter", "nope", "-p", "3")]:
        refused = headrace.attempt("topic", *arguments)
        assert refused.code == 1
        assert "UNKNOWN_TOPIC_OR_PARTITION" in refused.err
    assert headrace("topic", "delete", "nope", "-y", "--if-exists", "--json").json == []


def test_settings_of_a_topic(headrace: Any, topic: str) -> None:
    headrace("config", "set", "topic", topic, "retention.ms=1234", "cleanup.policy=delete")
    (setting,) = headrace("config", "get", "topic", topic, "retention.ms", "--json").json
    assert (setting["value"], setting["source"]) == ("1234", "topic")
    headrace("config", "set", "topic", topic, "--append", "cleanup.policy=compact", "--unset", "retention.ms")
    changed = {s["name"]: s for s in headrace("config", "get", "topic", topic, "--all", "--json").json}
    assert changed["cleanup.policy"]["value"] == "delete,compact"
    assert (changed["retention.ms"]["value"], changed["retention.ms"]["source"]) == ("604800000", "default")
    shown = headrace("config", "get", "topic", topic).lines
    assert shown[0].split() == ["KEY", "VALUE", "SOURCE", "DEFAULT"]
    assert any(line.startswith("cleanup.policy  ") and "delete,compact" in line for line in shown)


def test_a_wrong_setting_changes_nothing(headrace: Any, topic: str) -> None:
    refused = headrace.attempt("config", "set", "topic", topic, "retention.ms=5", "no.such=1")
    assert refused.code == 1
    assert "INVALID_CONFIG" in refused.err
    headrace("config", "set", "topic", topic, "retention.ms=5", "--dry-run")
    (setting,) = headrace("config", "get", "topic", topic, "retention.ms", "--json").json
    assert setting["source"] == "default"


def test_settings_of_a_broker(headrace: Any) -> None:
    settings = {s["name"]: s for s in headrace("config", "get", "broker", "1", "--all", "--json").json}
    assert settings["node.id"]["value"] == "1"
    assert settings["node.id"]["read_only"]
    refused = headrace.attempt("config", "get", "broker", "77")
    assert refused.code == 1
    assert "the brokers are 1" in refused.err
    unknown = headrace.attempt("config", "get", "broker", "1", "no.such.key")
    assert unknown.code == 1
    assert "no setting 'no.such.key'" in unknown.err


def test_settings_of_a_group_which_need_not_be_there(headrace: Any) -> None:
    headrace("config", "set", "group", "readers", "consumer.session.timeout.ms=50000")

    def shown() -> list[list[str]]:
        return [line.split() for line in headrace("config", "get", "group", "readers").lines[1:]]

    eventually(shown, [["consumer.session.timeout.ms", "50s", "group", "45s"]])
    refused = headrace.attempt("config", "set", "group", "readers", "consumer.session.timeout.ms=1")
    assert refused.code == 1
    assert "group.consumer.min.session.timeout.ms" in refused.err


def test_the_cluster(headrace: Any, cli_broker: Any) -> None:
    cluster = headrace("cluster", "describe", "--json").json
    (broker,) = cluster["brokers"]
    assert (broker["id"], broker["port"]) == (1, cli_broker.port)
    assert broker["log_dirs"][0]["error"] is None
    assert headrace("cluster", "describe").lines[0].startswith(f"cluster {cluster['cluster_id']}")


def test_durations_and_sizes_are_typed_and_printed_as_people_do(inside: Any) -> None:
    inside("topic", "create", "units", "-c", "retention.ms=7d", "-c", "segment.bytes=64MiB")
    (described,) = inside("topic", "describe", "units", "--json").json
    assert described["config"] == {"retention.ms": "604800000", "segment.bytes": "67108864"}
    assert {"retention.ms=7d", "segment.bytes=64MiB"} <= set(inside("topic", "describe", "units").lines)
    inside("topic", "alter", "units", "-c", "retention.ms=36h")
    inside("config", "set", "topic", "units", "max.message.bytes=2MB")
    shown = {line.split()[0]: line.split()[1] for line in inside("config", "get", "topic", "units").lines}
    assert (shown["retention.ms"], shown["max.message.bytes"]) == ("36h", "2000000")
    raw = {s["name"]: s["value"] for s in inside("config", "get", "topic", "units", "--json").json}
    assert (raw["retention.ms"], raw["max.message.bytes"]) == ("129600000", "2000000")
    refused = inside.attempt("config", "set", "topic", "units", "retention.ms=soon")
    assert refused.code == 2
    assert "retention.ms=soon: 'soon' is not a duration; write" in refused.err


def test_the_closest_name_is_suggested(inside: Any) -> None:
    topic, typo = "suggestions", "sugestions"  # other tests' topics are nothing like it
    inside("topic", "create", topic)
    for words in [
        ("topic", "describe", typo),
        ("topic", "delete", typo, "--yes"),
        ("topic", "trim", typo, "--before", "latest", "--yes"),
        ("topic", "alter", typo, "-p", "3"),
        ("config", "get", "topic", typo),
        ("consume", typo),
    ]:
        refused = inside.attempt(*words)
        assert refused.code == 1, words
        assert "UNKNOWN_TOPIC_OR_PARTITION" in refused.err
        assert f"Did you mean {topic}?" in refused.err, words
    key = inside.attempt("config", "get", "topic", topic, "retention.mss")
    assert "did you mean retention.ms?" in key.err


def test_a_topic_is_deleted_only_with_consent(headrace: Any, topic: str) -> None:
    """There is nobody to ask in a pipe, and silence is not consent."""
    refused = headrace.attempt("topic", "delete", topic, stdin=b"y\n")
    assert refused.code == 2
    assert f"Delete {topic} (2 partitions, 0 records)?" in refused.err
    assert "--yes" in refused.err
    told = headrace.attempt("topic", "delete", topic, "--json")
    assert (told.code, json.loads(told.err)["error"]) == (2, "USAGE")
    assert topic in headrace("topic", "list").lines


@pytest.mark.parametrize(("answer", "is_deleted"), [(b"n\n", False), (b"y\n", True)])
def test_a_person_at_a_terminal_is_asked(headrace: Any, topic: str, answer: bytes, is_deleted: bool) -> None:
    master, slave = os.openpty()
    try:
        asked = headrace.start("topic", "delete", topic, stdin=slave, stderr=subprocess.PIPE)
        os.write(master, answer)
        _, said = asked.communicate(timeout=60)
    finally:
        os.close(slave)
        os.close(master)
    assert asked.returncode == (0 if is_deleted else 1)
    assert b"Delete" in said
    assert (topic in headrace("topic", "list").lines) != is_deleted
