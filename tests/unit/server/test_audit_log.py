"""The audit log's file: who may read it, how it is rotated, and what happens when it cannot be written."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from headrace.server import audit_log
from headrace.server.audit_log import AuditFile, AuditLog, line_of
from headrace.server.logs import Log

WALL_MS = 1_700_000_000_123


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


class TestFile:
    def make(self, path: Path, bytes_max: int = 1_000_000, files: int = 3) -> AuditFile:
        file = AuditFile(str(path), bytes_max=bytes_max, files=files)
        file.open()
        return file

    def test_only_the_own_user_reads_it(self, tmp_path: Path) -> None:
        path = tmp_path / "audit.log"
        path.write_bytes(b"{}\n")
        path.chmod(0o644)
        self.make(path).close()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def test_a_link_is_not_followed(self, tmp_path: Path) -> None:
        (tmp_path / "audit.log").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(OSError):
            self.make(tmp_path / "audit.log")
        assert not (tmp_path / "elsewhere").exists()

    def test_files_are_rotated_by_size_and_the_oldest_goes(self, tmp_path: Path) -> None:
        path = tmp_path / "audit.log"
        file = self.make(path, bytes_max=100, files=3)
        for number in range(20):
            file.write([b"%039d\n" % number])
        file.write([b"%039d\n" % number for number in range(20, 23)])  # in the middle of a batch, too
        file.close()
        assert sorted(one.name for one in tmp_path.iterdir()) == ["audit.log", "audit.log.1", "audit.log.2"]
        left = [int(line) for name in (".2", ".1", "") for line in Path(f"{path}{name}").read_text().split()]
        assert left == [18, 19, 20, 21, 22]
        assert {stat.S_IMODE(one.stat().st_mode) for one in tmp_path.iterdir()} == {0o600}

    def test_with_one_file_it_begins_again(self, tmp_path: Path) -> None:
        file = self.make(tmp_path / "audit.log", bytes_max=100, files=1)
        for number in range(5):
            file.write([b"%039d\n" % number])
        assert [one.name for one in tmp_path.iterdir()] == ["audit.log"]
        assert (tmp_path / "audit.log").read_bytes() == b"%039d\n" % 4

    def test_a_line_that_a_killed_process_left_is_ended(self, tmp_path: Path) -> None:
        path = tmp_path / "audit.log"
        path.write_bytes(b'{"event": "log')
        file = self.make(path)
        file.write([b"{}\n"])
        assert path.read_bytes() == b'{"event": "log\n{}\n'

    def test_a_file_that_somebody_moved_is_made_again(self, tmp_path: Path) -> None:
        path = tmp_path / "audit.log"
        file = self.make(path)
        file.write([b"1\n"])
        path.rename(tmp_path / "moved")
        file.write([b"2\n"])
        assert ((tmp_path / "moved").read_bytes(), path.read_bytes()) == (b"1\n", b"2\n")

    def test_a_full_disk_leaves_no_half_line(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "audit.log"
        file = self.make(path)
        file.write([b"first\n"])
        real = os.write

        def half(descriptor: int, data: bytes) -> int:
            if len(data) > 3:
                return real(descriptor, data[:3])
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "write", half)
        with pytest.raises(OSError):
            file.write([b"second\n"])
        monkeypatch.undo()
        file.write([b"third\n"])
        assert path.read_bytes() == b"first\nthird\n"


class Fails(AuditFile):
    """Has no room for a while."""

    is_full = False

    def write(self, lines: Any) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(lines)


class Counted:
    audit_written = 0
    audit_lost = 0


class TestLog:
    def test_the_broker_serves_on_and_the_gap_is_told(self, tmp_path: Path) -> None:
        told: list[str] = []
        counts = Counted()

        async def play() -> None:
            file = Fails(str(tmp_path / "audit.log"), bytes_max=1_000_000, files=2)
            audit = AuditLog(asyncio.get_running_loop(), file, Log(write=told.append), counts)
            audit.open()
            for is_full, events in ((False, ["a"]), (True, ["b", "c"]), (True, ["d"]), (False, ["e"])):
                file.is_full = is_full
                audit.write(WALL_MS, [{"event": event} for event in events])
                while not audit.is_idle:
                    await asyncio.sleep(0)
            audit.close()

        asyncio.run(play())
        events = [(one["event"], one.get("count")) for one in lines(tmp_path / "audit.log")]
        assert events == [("a", None), ("lost", 3), ("e", None)]
        assert (counts.audit_written, counts.audit_lost) == (2, 3)
        assert [line.split()[2:3] for line in told] == [["audit_log_failed"]] * 2
        assert "No space left on device" in told[0]

    def test_entries_that_wait_for_a_slow_disk_are_limited(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(audit_log, "WAITING_MAX", 10)
        counts = Counted()

        async def play() -> None:
            file = AuditFile(str(tmp_path / "audit.log"), bytes_max=1_000_000, files=2)
            audit = AuditLog(asyncio.get_running_loop(), file, Log(write=lambda line: None), counts)
            audit.open()
            for number in range(40):  # the loop does not run in between, so no write ends
                audit.write(WALL_MS, [{"event": str(number)}])
            while not audit.is_idle:
                await asyncio.sleep(0)
            audit.write(WALL_MS, [{"event": "later"}])
            while not audit.is_idle:
                await asyncio.sleep(0)
            audit.close()

        asyncio.run(play())
        events = [one["event"] for one in lines(tmp_path / "audit.log")]
        assert (counts.audit_written, counts.audit_lost) == (12, 29)
        assert events == [*map(str, range(11)), "lost", "later"] or events == [
            "0",
            "lost",
            *map(str, range(1, 11)),
            "later",
        ]

    def test_an_impossible_path_is_an_error_at_the_start(self, tmp_path: Path) -> None:
        counts = Counted()

        async def play() -> None:
            file = AuditFile(str(tmp_path / "missing" / "audit.log"), bytes_max=100_000, files=2)
            AuditLog(asyncio.get_running_loop(), file, Log(write=lambda line: None), counts).open()

        with pytest.raises(FileNotFoundError):
            asyncio.run(play())


def test_what_clients_wrote_is_escaped() -> None:
    evil = "a\nb\x1b[31m\x7f\u202e\x9b\ud800\0"
    line = line_of((WALL_MS, {"event": "refused", "name": evil}))
    assert line.endswith(b"\n")
    assert all(32 <= byte < 127 for byte in line[:-1])
    assert json.loads(line) == {"time": "2023-11-14T22:13:20.123Z", "event": "refused", "name": evil}
