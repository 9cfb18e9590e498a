"""`headrace produce` and `consume` against a broker: what goes in comes out, in every shape."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from headrace import Producer


def values(headrace: Any, topic: str, *arguments: str) -> list[str]:
    return sorted(headrace("consume", topic, *arguments).lines)


def test_lines_become_records(headrace: Any, topic: str) -> None:
    headrace("produce", topic, stdin=b"one\ntwo\n\nfour")
    assert values(headrace, topic) == ["", "four", "one", "two"]


def test_keys_headers_and_nulls(headrace: Any, topic: str) -> None:
    headrace(
        "produce",
        topic,
        "-K",
        ":",
        "-H",
        "source=test",
        "--null",
        "NIL",
        "-p",
        "1",
        stdin=b"a:1\nb:NIL\n:3\n",
    )
    shown = headrace("consume", topic, "-f", r"%t %p %o %k(%K)=%s(%S) %h\n").lines
    assert shown == [
        f"{topic} 1 0 a(1)=1(1) source=test",
        f"{topic} 1 1 b(1)=(-1) source=test",
        f"{topic} 1 2 (0)=3(1) source=test",
    ]
    assert headrace("consume", topic, "-K", "->").lines == ["a->1", "b->", "->3"]


def test_the_same_key_goes_to_the_same_partition(headrace: Any, topic: str) -> None:
    headrace("produce", topic, "-K", ":", stdin=b"".join(b"k%d:%d\n" % (i % 7, i) for i in range(70)))
    seen: dict[str, set[str]] = {}
    for line in headrace("consume", topic, "-f", r"%k %p\n").lines:
        key, partition = line.split()
        seen.setdefault(key, set()).add(partition)
    assert len(seen) == 7
    assert all(len(partitions) == 1 for partitions in seen.values())
    assert len(set.union(*seen.values())) == 2


def test_json_lines_go_round(headrace: Any, topic: str) -> None:
    now_ms = time.time_ns() // 1_000_000  # old records could be gone before they are read
    given = [
        {
            "key": "k",
            "value": "v",
            "headers": [["a", "b"], ["c", None]],
            "partition": 1,
            "timestamp": now_ms - 3,
        },
        {"key": None, "value": {"base64": "/w=="}, "headers": [], "partition": 0, "timestamp": now_ms - 2},
        {"key": "only", "value": None, "headers": [], "partition": 0, "timestamp": now_ms - 1},
    ]
    summary = headrace(
        "produce", topic, "--json", stdin="".join(json.dumps(e) + "\n" for e in given).encode()
    ).json
    assert summary == {"topic": topic, "records": 3, "end_offsets": {"0": 2, "1": 1}}
    back = headrace("consume", topic, "--json").json_lines
    shapes = [{k: e[k] for k in ("key", "value", "headers", "partition", "timestamp")} for e in back]
    assert sorted(shapes, key=json.dumps) == sorted(given, key=json.dumps)
    assert {e["topic"] for e in back} == {topic}


def test_files_and_whole_files(headrace: Any, topic: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1\n2\n")
    (tmp_path / "b.txt").write_text("3\n4\n")
    headrace("produce", topic, str(tmp_path / "a.txt"), str(tmp_path / "b.txt"))
    assert values(headrace, topic) == ["1", "2", "3", "4"]
    headrace("produce", topic, "--whole-file", "-p", "0", str(tmp_path / "a.txt"))
    assert headrace("consume", topic, "-p", "0", "--from", "-1").out == b"1\n2\n\n"


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec(headrace: Any, topic: str, codec: str) -> None:
    lines = [f"line {i} {'x' * 50}" for i in range(500)]
    headrace("produce", topic, "-z", codec, stdin="\n".join(lines).encode())
    assert values(headrace, topic) == sorted(lines)


@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_every_kind_of_acknowledgement(headrace: Any, topic: str, acks: str) -> None:
    headrace("produce", topic, "--acks", acks, "-p", "0", stdin=b"a\nb\n")
    done = headrace("consume", topic, "-p", "0", "--follow", "--from", "earliest", "-n", "2")
    assert done.lines == ["a", "b"]


def test_ranges_by_offset(headrace: Any, topic: str) -> None:
    headrace("produce", topic, "-p", "0", stdin=b"\n".join(b"%d" % i for i in range(100)))
    only = ("-p", "0")
    assert headrace("consume", topic, *only, "--from", "95").lines == ["95", "96", "97", "98", "99"]
    assert headrace("consume", topic, *only, "--from", "10", "--to", "13").lines == ["10", "11", "12"]
    assert headrace("consume", topic, *only, "--from", "-2").lines == ["98", "99"]
    assert headrace("consume", topic, *only, "-n", "3").lines == ["0", "1", "2"]
    assert headrace("consume", topic, *only, "--from", "latest").lines == []
    assert headrace("consume", topic, *only, "--to", "2").lines == ["0", "1"]


def test_ranges_by_time(headrace: Any, topic: str) -> None:
    stamps = [f"2026-01-01T0{hour}:00:00Z" for hour in range(5)]
    base = 1_767_225_600_000
    lines = [
        json.dumps({"value": stamp, "timestamp": base + i * 3_600_000}) for i, stamp in enumerate(stamps)
    ]
    headrace("config", "set", "topic", topic, "retention.ms=-1")  # however long ago that was
    headrace("produce", topic, "--json", "-p", "0", stdin="\n".join(lines).encode())
    assert headrace("consume", topic, "--from", "2026-01-01T03:00:00Z").lines == stamps[3:]
    assert (
        headrace("consume", topic, "--from", "2026-01-01T00:30:00Z", "--to", stamps[3]).lines == stamps[1:3]
    )
    assert headrace("consume", topic, "--from", f"@{base + 4 * 3_600_000}").lines == stamps[4:]
    assert headrace("consume", topic, "--from", "2099-01-01").lines == []


def test_follow_sees_what_is_written_later_and_ends_quietly(headrace: Any, topic: str) -> None:
    follower = headrace.start("consume", topic, "--follow", "--from", "earliest", stdout=subprocess.PIPE)
    assert follower.stdout is not None
    for word in (b"first\n", b"second\n"):
        headrace("produce", topic, stdin=word)
        assert follower.stdout.readline() == word
    follower.send_signal(signal.SIGINT)
    assert follower.wait(20) == 0


def test_a_slow_pipe_is_sent_on_before_it_ends(headrace: Any, topic: str) -> None:
    """`tail -f | headrace produce`: a line must not wait for the next one."""
    reader, writer = os.pipe()
    producer = headrace.start("produce", topic, stdin=reader)
    os.close(reader)
    try:
        os.write(writer, b"early\n")
        assert headrace("consume", topic, "--follow", "--from", "earliest", "-n", "1").lines == ["early"]
    finally:
        os.close(writer)
        assert producer.wait(20) == 0


def test_a_reader_that_goes_away_is_no_error(headrace: Any, topic: str) -> None:
    headrace("produce", topic, stdin=b"\n".join(b"%0100d" % i for i in range(20_000)))
    reading = headrace.start("consume", topic, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert reading.stdout is not None
    reading.stdout.readline()
    reading.stdout.close()
    reading.stdout = None
    assert reading.communicate(timeout=20) == (None, b"")
    assert reading.returncode == 0


def test_a_rate_is_kept(headrace: Any, topic: str) -> None:
    """By the stamps that the producer gives: record n leaves n/rate seconds after the first, or later."""
    headrace("produce", topic, "--rate", "100", "-p", "0", stdin=b"x\n" * 30)
    stamps = [int(line) for line in headrace("consume", topic, "-f", r"%T\n").lines]
    assert len(stamps) == 30
    assert stamps[-1] - stamps[0] >= 280


def test_trimmed_records_are_gone(headrace: Any, topic: str) -> None:
    headrace("produce", topic, "-p", "0", stdin=b"\n".join(b"%d" % i for i in range(10)))
    cut = {"partition": 0, "from": 0, "to": 7, "records": 7, "bytes": 0}
    trim = ("topic", "trim", topic, "--before", "7", "-p", "0", "--json")
    unsure = headrace.attempt(*trim)
    assert (unsure.code, unsure.out) == (2, b"")
    assert "Delete 7 records" in unsure.err
    assert "--yes" in unsure.err
    assert headrace(*trim, "--dry-run").json == [cut | {"deleted": False}]
    assert len(headrace("consume", topic).lines) == 10
    assert headrace(*trim, "--yes").json == [cut | {"deleted": True}]
    assert headrace(*trim).json == [
        {"partition": 0, "from": 7, "to": 7, "records": 0, "bytes": 0, "deleted": False}
    ], "there is nothing left to ask about"
    assert headrace("consume", topic).lines == ["7", "8", "9"]
    refused = headrace.attempt("consume", topic, "-p", "0", "--from", "3")
    assert refused.code == 1
    assert "OFFSET_OUT_OF_RANGE" in refused.err
    assert "offset 3" in refused.err


def test_a_trim_shows_what_goes_and_is_all_or_nothing(inside: Any, cli_broker: Any, topic: str) -> None:
    with Producer(cli_broker.bootstrap) as producer:
        for partition, count in ((0, 10), (1, 3)):
            for number in range(count):  # a batch each: sizes are told by whole batches
                producer.send(topic, b"%d" % number, partition=partition).get(timeout=60)
    refused = inside.attempt("topic", "trim", topic, "--before", "5", "--yes")
    assert refused.code == 1
    assert f"partition {topic}-1 has no offset 5: it has offsets 0 to 3" in refused.err
    (described,) = inside("topic", "describe", topic, "--json").json
    assert [one["start"] for one in described["partitions"]] == [0, 0], "nothing was deleted"
    shown = inside("topic", "trim", topic, "--before", "-3", "--yes").lines
    assert [line.split()[:4] for line in shown[:3]] == [
        ["PARTITION", "FROM", "TO", "RECORDS"],
        ["0", "0", "7", "7"],
        ["1", "0", "0", "0"],
    ]
    assert "B" in shown[1]
    assert shown[3:] == [f"{topic}-0 now begins at offset 7"]


def test_writing_creates_a_topic_only_when_told(headrace: Any, inside: Any) -> None:
    topic, typo = "written-to", "writen-to"
    inside("topic", "create", topic)
    refused = headrace.attempt("produce", typo, stdin=b"lost\n")
    assert (refused.code, refused.out) == (1, b"")
    assert "UNKNOWN_TOPIC_OR_PARTITION" in refused.err
    assert f"Did you mean {topic}?" in refused.err
    assert "--create" in refused.err
    assert typo not in inside("topic", "list").lines
    headrace("produce", typo, "--create", stdin=b"kept\n")
    headrace("produce", typo, "--create", stdin=b"again\n")
    assert values(headrace, typo) == ["again", "kept"]


def test_wrong_input_is_named_with_its_line(headrace: Any, topic: str) -> None:
    refused = headrace.attempt("produce", topic, "--json", stdin=b'{"value": "a"}\n{"value"\n')
    assert refused.code == 1
    assert "stdin, line 2: not JSON" in refused.err
    assert "The lines before it were sent" in refused.err
    assert headrace("consume", topic).lines == ["a"]
    refused = headrace.attempt("produce", topic, "-K", ":", stdin=b"a:1\nnone\n")
    assert "line 2: the line does not contain the key separator ':'" in refused.err
    refused = headrace.attempt("produce", topic, "-p", "9", stdin=b"a\n")
    assert "has partitions 0 to 1" in refused.err
    refused = headrace.attempt("consume", topic, "-p", "9")
    assert "has partitions 0 to 1" in refused.err


def test_a_record_that_is_too_large(headrace: Any, topic: str) -> None:
    headrace("topic", "alter", topic, "-c", "max.message.bytes=1000")
    headrace("produce", topic, stdin=b"\n".join(b"%0100d" % i for i in range(500)))
    assert len(headrace("consume", topic).lines) == 500, "batches are split where their records fit"
    refused = headrace.attempt("produce", topic, stdin=b"x" * 5000)
    assert refused.code == 1
    assert "MESSAGE_TOO_LARGE" in refused.err
    assert "max.message.bytes" in refused.err


def test_consuming_a_topic_that_is_not_there_does_not_make_it(headrace: Any) -> None:
    refused = headrace.attempt("consume", "never-made")
    assert (refused.code, refused.out) == (1, b"")
    assert "UNKNOWN_TOPIC_OR_PARTITION" in refused.err
    assert "never-made" not in headrace("topic", "list").lines


def test_bench_measures_and_cleans_up(headrace: Any) -> None:
    report = headrace("bench", "-n", "5000", "--samples", "100", "--json").json
    assert report["rates"]["produce"]["records_per_s"] > 0
    assert report["rates"]["consume"]["records_per_s"] > 0
    assert set(report["latencies_us"]) == {"acknowledged", "arrived"}
    assert not [name for name in headrace("topic", "list").lines if name.startswith("headrace-bench")]
