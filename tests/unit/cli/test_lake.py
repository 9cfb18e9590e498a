"""`headrace lake`: a topic becomes a table, which is looked at, verified, optimized and read."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace as client
from harness.command_line import CommandLine
from headrace.client.admin.configs import Resource
from headrace.lake.errors import WrongTable
from headrace.lake.topic import LakeTopic
from headrace.machines.lake.ledger import Span
from headrace.machines.lake.plan import Log
from headrace.testing import Broker
from headrace.testing.records import Record


@pytest.fixture
def table(tmp_path: Path) -> str:
    return str(tmp_path / "table")


@pytest.fixture
def topic(broker: Broker) -> str:
    """With three records in each of two partitions."""
    broker.create_topic("clicks", 2, retention_ms=-1)
    write(broker, range(3))
    return "clicks"


def write(broker: Broker, numbers: range) -> None:
    broker.produce_all(
        "clicks",
        [
            Record(
                b"v%d" % number,
                b"k%d" % number,
                partition=partition,
                timestamp_ms=1_700_000_000_000 + number,
                headers=(("h", b"x"), ("none", None)),
            )
            for number in numbers
            for partition in (0, 1)
        ],
    )


def test_a_table_follows_its_topic(headrace: CommandLine, broker: Broker, topic: str, table: str) -> None:
    made = headrace("lake", "enable", topic, "--table", table, "--json").json
    assert (made["rows"], made["files"], made["commits"], made["group"]) == (6, 2, 1, "lake-clicks")
    write(broker, range(3, 5))
    status = headrace("lake", "status", table, "--json").json
    assert (status["topic"], status["files"]) == ("clicks", 2)
    assert status["partitions"][0] == {
        "partition": 0,
        "start": 0,
        "next": 3,
        "log_start": 0,
        "log_end": 5,
        "behind": 2,
        "loss_in_ms": None,
    }
    lines = headrace("lake", "enable", topic, "--table", table).lines
    assert lines[0].startswith(f"{table}: added 4 rows in 2 files (")
    shown = headrace("lake", "status", table).lines
    assert "topic clicks, delta, version 2, 4 files" in shown[0]
    assert shown[2].split() == ["0", "0", "5", "0", "5", "0"]
    with client.Admin(broker.bootstrap_servers) as admin:
        assert {
            at.partition: held.offset for at, held in admin.list_group_offsets("lake-clicks").items()
        } == {
            0: 5,
            1: 5,
        }


def test_what_is_late_is_lost_when_its_retention_ends(
    headrace: CommandLine, broker: Broker, topic: str, table: str
) -> None:
    headrace("lake", "enable", topic, "--table", table, "--from", "latest")
    write(broker, range(3, 4))
    with client.Admin(broker.bootstrap_servers) as admin:
        admin.alter_config(Resource.topic(topic), {"retention.ms": str(10**15)})
    status = headrace("lake", "status", table, "--json").json
    assert all(0 < one["loss_in_ms"] < 10**15 for one in status["partitions"])
    assert "clicks-0 loses records in" in headrace("lake", "status", table).out.decode()


def test_verify_says_what_it_has_proved(
    headrace: CommandLine, broker: Broker, topic: str, table: str
) -> None:
    with client.Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t"}
    ) as producer:
        producer.begin_transaction()
        producer.send(topic, b"aborted", partition=0)
        producer.flush()
        producer.abort_transaction()
    headrace("lake", "enable", topic, "--table", table)
    found = headrace("lake", "verify", table, "--full", "--json").json
    assert found["clean"] is True
    assert (found["rows"], found["compared"], found["aborted"], found["control"]) == (6, 6, 1, 1)
    lines = headrace("lake", "verify", table, "--full").lines
    assert lines[0] == "6 rows in 2 files for 8 offsets"
    assert "of the other offsets 1 are aborted, 1 control records" in lines[2]
    for path in Path(table).glob("*.parquet"):
        path.unlink()
    broken = headrace("lake", "verify", table, code=1)
    assert "4 faults found" in broken.err
    assert [line.split()[0] for line in broken.lines[:4]] == ["file_missing", "file_missing", "gap", "gap"]
    told = headrace("lake", "verify", table, "--json", code=1).json
    assert told["clean"] is False
    assert told["findings"][-1]["range"] == {"partition": 1, "start": 0, "end": 3}


def test_lost_records_need_permission(headrace: CommandLine, broker: Broker, topic: str, table: str) -> None:
    headrace("lake", "enable", topic, "--table", table)
    write(broker, range(3, 6))
    with client.Admin(broker.bootstrap_servers) as admin:
        admin.delete_records({(topic, 0): 5})
    refused = headrace.refused("lake", "enable", topic, "--table", table)
    assert "offsets 3 to 4 of partition 0" in refused
    told = headrace("lake", "enable", topic, "--table", table, "--allow-loss").lines
    assert "lost" in told[1]
    found = headrace("lake", "verify", table, "--full")
    assert "2 offsets are lost: the topic deleted them before they were copied" in found.lines


def test_rows_are_printed_from_table_and_topic(
    headrace: CommandLine, broker: Broker, topic: str, table: str
) -> None:
    headrace("lake", "enable", topic, "--table", table)
    write(broker, range(3, 4))
    assert headrace("lake", "read", table).lines == ["v0", "v1", "v2"] * 2
    assert headrace("lake", "read", table, "--live").lines == ["v0", "v1", "v2", "v3"] * 2
    assert headrace("lake", "read", table, "--live", "--limit", "5").lines == ["v0", "v1", "v2", "v3", "v0"]
    some = headrace("lake", "read", table, "--partition", "1", "--from", "1", "--to", "2", "--json")
    (row,) = some.json_lines
    assert (row["topic"], row["partition"], row["offset"], row["key"], row["value"]) == (
        "clicks",
        1,
        1,
        "k1",
        "v1",
    )
    assert row["timestamp"] == 1_700_000_000_001


def test_a_table_is_filled_backwards_and_optimized(
    headrace: CommandLine, broker: Broker, topic: str, table: str
) -> None:
    headrace("lake", "enable", topic, "--table", table, "--from", "latest")
    assert headrace("lake", "backfill", table, "--from", "1", "--json").json["rows"] == 4
    headrace("lake", "backfill", table)
    done = headrace("lake", "optimize", table, "--json").json
    assert (done["files_before"], done["files_after"], done["removed_files"]) == (4, 2, 0)
    assert headrace("lake", "optimize", table).lines[0].startswith(f"{table}: 2 files before, 2 now;")
    assert headrace("lake", "read", table).lines == ["v0", "v1", "v2"] * 2
    assert headrace("lake", "verify", table, "--full", "--json").json["clean"] is True


def test_a_topic_that_was_made_again_is_another_topic(
    headrace: CommandLine, broker: Broker, topic: str, table: str
) -> None:
    headrace("lake", "enable", topic, "--table", table)
    broker.delete_topic(topic)
    broker.create_topic(topic, 2)
    assert "use another path" in headrace.refused("lake", "enable", topic, "--table", table)
    assert "Make a new table for the new topic" in headrace.refused("lake", "status", table)
    misspelt = headrace.refused("lake", "enable", "click", "--table", table)
    assert "Did you mean clicks?" in misspelt


def test_fields_become_columns_and_bad_records_dead_letters(
    headrace: CommandLine, broker: Broker, table: str, tmp_path: Path
) -> None:
    broker.create_topic("orders", 1, retention_ms=-1)
    broker.produce_all("orders", [Record(b'{"user": "ada", "sum": 7}'), Record(b"garbage"), Record(b"{}")])
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object", "properties": {"user": {"type": "string"}}}')
    dead = tmp_path / "dead"
    enable = ["lake", "enable", "orders", "--table", table, "--values", "json", "--schema", str(schema)]
    assert "offset 1 of partition orders-0" in headrace.refused(*enable)
    made = headrace(*enable, "--dead-letters", str(dead), "--json").json
    assert (made["rows"], made["dead_letters"]) == (2, 1)
    (row, empty) = headrace("lake", "read", table).json_lines
    assert (row["_offset"], row["user"], "user" in empty) == (0, "ada", False)
    assert headrace("lake", "read", str(dead)).lines == ["garbage"]
    broker.produce_all("orders", [Record(b"[]"), Record(b'{"user": "bob"}')])
    assert [row.get("user") for row in headrace("lake", "read", table, "--live").json_lines] == [
        "ada",
        None,
        "bob",
    ]
    told = headrace("lake", "enable", "orders", "--table", table).lines
    assert told[1].split(maxsplit=2)[:2] == ["dead", "letters"]
    shown = headrace("lake", "verify", table, "--full").lines
    assert "2 offsets are dead letters, in the table ../dead" in shown
    assert headrace("lake", "verify", table, "--full", "--json").json["compared"] == 5
    assert headrace("lake", "verify", str(dead), "--json").json["rows"] == 2
    assert "for the table to which" in headrace.refused("lake", "verify", str(dead), "--full", code=2)


def test_a_table_of_the_newest_records(headrace: CommandLine, broker: Broker, table: str) -> None:
    broker.create_topic("prices", 1, retention_ms=-1)
    broker.produce_all("prices", [Record(b"3", b"tea"), Record(b"4", b"tea"), Record(b"5", b"milk")])
    enable = ["lake", "enable", "prices", "--table", table, "--upsert"]
    assert headrace(*enable, "--json").json["rows"] == 2
    broker.produce_all("prices", [Record(None, b"milk")])
    headrace(*enable)
    assert headrace("lake", "read", table).lines == ["4"]
    lines = headrace("lake", "verify", table, "--full").lines
    assert lines[0] == "1 row in 1 file, one for each key"
    assert lines[1].startswith("2 keys compared with the topic; 0 rows have a newer record")
    for path in Path(table).glob("*.parquet"):
        path.unlink()
    assert "2 faults found" in headrace("lake", "verify", table, code=1).err


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        (["--upsert", "--from", "latest"], "needs all keys"),
        (["--keep-values"], "need --values"),
        (["--values", "json"], "needs --schema FILE"),
        (["--values", "registry", "--schema", __file__], "leave --schema out"),
    ],
)
def test_options_for_values_that_do_not_go_together(
    headrace: CommandLine, topic: str, table: str, options: list[str], advice: str
) -> None:
    assert advice in headrace.refused("lake", "enable", topic, "--table", table, *options, code=2)


def test_what_the_topic_of_a_table_says(broker: Broker, topic: str) -> None:
    with client.Admin(broker.bootstrap_servers) as admin:
        source = LakeTopic(admin, {"bootstrap.servers": broker.bootstrap_servers}, topic)
        identity = source.topic_id()
        assert source.logs(identity) == {0: Log(0, 3), 1: Log(0, 3)}
        with pytest.raises(WrongTable, match="Make a new table"):
            source.logs("AAAAAAAAAAAAAAAAAAAAAQ")
        assert source.config("retention.ms") == "-1"
        assert source.config("no.such.key") == ""
        assert source.is_compacted() is False
        assert source.first_time_ms(identity, Span(1, 1, 3)) == 1_700_000_000_001
        assert source.first_time_ms(identity, Span(1, 3, 3)) is None
        (rows,) = source.read(identity, Span(0, 1, 2))
        assert rows.to_pylist()[0] | {"_timestamp": None} == {
            "_partition": 0,
            "_offset": 1,
            "_timestamp": None,
            "_timestampType": 0,
            "_key": b"k1",
            "_value": b"v1",
            "_headers": [{"key": "h", "value": b"x"}, {"key": "none", "value": None}],
        }
        source.commit("empty", {})
        source.commit("moved", {1: 2})
        assert [group.group for group in admin.list_groups()] == ["moved"]
