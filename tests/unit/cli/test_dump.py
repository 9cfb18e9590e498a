"""`headrace dump` over files made byte by byte: what is shown, and that --verify sees every kind of
damage.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from headrace.cli.main import run
from headrace.records.builder import build_batch, end_marker
from headrace.server.log_check import check
from headrace.server.log_files import kind_of
from headrace.storage.producer_state import ProducerEntry, RememberedBatch
from headrace.storage.snapshots import encode_snapshot

BASE = 100


def batch(base_offset: int, *values: bytes, timestamp: int = 1000, codec: int = 0) -> bytes:
    return build_batch(
        [(timestamp + i, b"k%d" % i, value, (("h", b"\xff"),)) for i, value in enumerate(values)],
        base_offset=base_offset,
        leader_epoch=3,
        codec=codec,
    )


class Log:
    """A partition's directory with one segment of three batches and its indexes, all of it sound."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        self.batches = [
            batch(100, b"a", b"b", timestamp=1000),
            batch(102, b"c" * 300, timestamp=3000, codec=4),
            batch(103, b"d", b"e", timestamp=2000),
        ]
        second, third = len(self.batches[0]), len(self.batches[0]) + len(self.batches[1])
        self.write("log", b"".join(self.batches))
        self.write("index", struct.pack(">iiii", 2, second, 4, third))
        self.write("timeindex", struct.pack(">qiqi", 1001, 1, 3000, 2))

    def path(self, suffix: str) -> Path:
        return self.directory / f"{BASE:020d}.{suffix}"

    def write(self, suffix: str, data: bytes) -> None:
        self.path(suffix).write_bytes(data)

    def faults(self) -> list[str]:
        files = [path for path in sorted(self.directory.iterdir()) if kind_of(path)]
        return [f"{fault.path.suffix}: {fault.what}" for path in files for fault in check(path)]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "orders-0")


def shown(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, object]]:
    assert run(["dump", "--json", *map(str, arguments)]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


class TestShow:
    def test_batches_and_records(self, log: Log, capsys: pytest.CaptureFixture[str]) -> None:
        rows = shown(capsys, "--records", log.path("log"))
        assert [(row["base_offset"], row["last_offset"], row["codec"]) for row in rows] == [
            (100, 101, "none"),
            (102, 102, "zstd"),
            (103, 104, "none"),
        ]
        assert all(row["valid"] and row["leader_epoch"] == 3 for row in rows)
        assert rows[0]["records"] == [
            {
                "offset": 100,
                "timestamp": 1000,
                "key": "k0",
                "value": "a",
                "headers": [["h", {"base64": "/w=="}]],
            },
            {
                "offset": 101,
                "timestamp": 1001,
                "key": "k1",
                "value": "b",
                "headers": [["h", {"base64": "/w=="}]],
            },
        ]

    def test_indexes_have_absolute_offsets(self, log: Log, capsys: pytest.CaptureFixture[str]) -> None:
        rows = shown(capsys, log.path("index"), log.path("timeindex"))
        assert [row["offset"] for row in rows] == [102, 104, 101, 102]
        assert rows[2]["timestamp"] == 1001

    def test_markers_snapshots_and_checkpoints(self, log: Log, capsys: pytest.CaptureFixture[str]) -> None:
        marker = end_marker(
            committed=False,
            coordinator_epoch=1,
            producer_id=9,
            producer_epoch=2,
            timestamp=5,
            base_offset=105,
        )
        log.write("log", log.path("log").read_bytes() + marker)
        producer = ProducerEntry(9, 2)
        producer.batches.append(RememberedBatch(0, 4, 104, 4, 2000))
        producer.timestamp = 2000
        log.write("snapshot", encode_snapshot([producer]))
        log.write("txnindex", struct.pack(">hqqqq", 0, 9, 100, 105, 106))
        (log.directory / "leader-epoch-checkpoint").write_text("0\n1\n3 100\n")
        (log.directory / "partition.metadata").write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw")
        rows = shown(capsys, "--records", log.directory)
        by_file: dict[str, list[dict[str, object]]] = {}
        for row in rows:
            by_file.setdefault(Path(str(row.pop("file"))).name, []).append(row)
        assert by_file["leader-epoch-checkpoint"] == [{"epoch": 3, "start_offset": 100}]
        assert by_file["partition.metadata"] == [{"topic_id": "AAECAwQFBgcICQoLDA0ODw"}]
        assert by_file[log.path("snapshot").name][0]["last_sequence"] == 4
        assert by_file[log.path("txnindex").name][0]["last_offset"] == 105
        last = by_file[log.path("log").name][-1]
        assert (last["control"], last["transactional"]) == (True, True)
        assert last["records"] == [{"offset": 105, "timestamp": 5, "control": "abort"}]

    def test_text_for_people(self, log: Log, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["dump", "--records", str(log.path("log"))]) == 0
        out = capsys.readouterr().out
        assert "base offset 100, last offset 101, count 2" in out
        assert "offset 101, timestamp 1001, key 'k1', value 'b', headers [h='\\xff']" in out

    def test_a_torn_tail_is_shown_up_to_the_tear(self, log: Log, capsys: pytest.CaptureFixture[str]) -> None:
        log.write("log", log.path("log").read_bytes()[:-1])
        assert run(["dump", "--json", str(log.path("log"))]) == 1
        told = capsys.readouterr()
        *batches, tear = map(json.loads, told.out.splitlines())
        assert len(batches) == 2
        assert "88 left" in tear["fault"]
        assert told.err == ""

    def test_what_is_no_log(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "notes.txt").write_text("x")
        assert run(["dump", str(tmp_path)]) == 1
        assert run(["dump", str(tmp_path / "notes.txt")]) == 1
        assert run(["dump", str(tmp_path / "nowhere")]) == 2
        capsys.readouterr()

    @pytest.mark.parametrize(
        ("name", "kind"),
        [
            ("00000000000000000000.log", "segment"),
            ("00000000000000000000.log.deleted", "segment"),
            ("00000000000000000012-0000000001.checkpoint", "segment"),
            ("00000000000000000000.timeindex", "timeindex"),
            ("00000000000000000007.snapshot", "snapshot"),
            ("recovery-point-offset-checkpoint", "checkpoint"),
            ("meta.properties", "properties"),
            ("server.log", None),
            (".lock", None),
        ],
    )
    def test_kinds_by_name(self, name: str, kind: str | None) -> None:
        assert kind_of(Path(name)) == kind


class TestVerify:
    def test_a_sound_log(self, log: Log, capsys: pytest.CaptureFixture[str]) -> None:
        assert log.faults() == []
        assert run(["dump", "--verify", str(log.directory)]) == 0
        assert capsys.readouterr().out == "3 files checked, no errors\n"

    def test_any_flipped_bit_of_a_segment_is_seen(self, log: Log) -> None:
        """All bytes but the leader epoch, which no checksum covers and any value of which may be right."""
        sound = log.path("log").read_bytes()
        starts = [0, len(log.batches[0]), len(log.batches[0]) + len(log.batches[1])]
        free = {start + at for start in starts for at in range(12, 16)}
        for at in range(len(sound)):
            if at not in free:
                log.write("log", sound[:at] + bytes([sound[at] ^ 0x40]) + sound[at + 1 :])
                assert log.faults(), f"byte {at}"

    @pytest.mark.parametrize("cut", [1, 30, 61, 75])
    def test_a_torn_tail(self, log: Log, cut: int) -> None:
        log.write("log", log.path("log").read_bytes()[:-cut])
        assert any(fault.startswith(".log") for fault in log.faults())

    @pytest.mark.parametrize(
        ("suffix", "data", "told"),
        [
            ("index", struct.pack(">ii", 2, 7), "no batch begins"),
            ("index", struct.pack(">ii", 3, 0), "ends at offset 101"),
            ("index", struct.pack(">iiii", 4, 500, 2, 400), "is not larger than the entry before it"),
            ("index", b"\1\2\3", "not a multiple of an entry's 8 bytes"),
            ("timeindex", struct.pack(">qi", 1001, 0), "no batch ends"),
            ("timeindex", struct.pack(">qi", 999, 1), "has timestamp 1001"),
            ("timeindex", struct.pack(">qiqi", 3000, 2, 1001, 1), "is not larger than the entry before it"),
            ("snapshot", b"\0\1" + bytes(8), "checksum"),
            ("snapshot", b"", "bytes"),
        ],
    )
    def test_indexes_and_snapshots_that_lie(self, log: Log, suffix: str, data: bytes, told: str) -> None:
        log.write(suffix, data)
        assert any(told in fault for fault in log.faults()), log.faults()

    def test_offsets_that_go_back(self, log: Log) -> None:
        log.write("log", batch(100, b"a", b"b") + batch(101, b"c"))
        assert any("the offset must be at least 102" in fault for fault in log.faults())

    def test_room_that_kafka_preallocates_is_no_fault(self, log: Log) -> None:
        for suffix in ("index", "timeindex"):
            log.write(suffix, log.path(suffix).read_bytes() + bytes(240))
        assert log.faults() == []

    def test_faults_as_json(self, log: Log, capsys: pytest.CaptureFixture[str]) -> None:
        log.write("index", struct.pack(">ii", 2, 7))
        assert run(["dump", "--verify", "--json", str(log.directory)]) == 1
        (fault,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert fault["file"].endswith(".index")
