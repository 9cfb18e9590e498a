"""The real disk keeps the same contract as the one in memory, and the paths inside its root."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.server.disk import PathEscapes, RealDisk, RealFile
from headrace.storage.disk import Disk, read_whole, write_atomically
from headrace.storage.memory_disk import MemoryDisk


@pytest.fixture(params=["real", "memory"])
def any_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return RealDisk(str(tmp_path)) if request.param == "real" else MemoryDisk()


@pytest.fixture
def disk(tmp_path: Path) -> RealDisk:
    return RealDisk(str(tmp_path))


# --- the contract, on both -------------------------------------------------------------------------------


def test_reads_what_was_appended(any_disk: Disk) -> None:
    file = any_disk.open("a", create=True)
    file.append(b"hello ")
    file.append(memoryview(b"there"))
    file.append(bytearray(b"!"))
    assert file.size() == 12
    assert file.read(6, 5) == b"there"
    assert file.read(6, 500) == b"there!"
    assert file.read(500, 5) == b""
    file.truncate(5)
    file.append(b"?")
    assert file.read(0, 100) == b"hello?"
    file.sync()
    file.close()
    file.close()
    assert read_whole(any_disk, "a") == b"hello?"


def test_missing_names_are_enoent(any_disk: Disk) -> None:
    for act in (
        lambda: any_disk.open("nothing"),
        lambda: any_disk.list("nothing"),
        lambda: any_disk.remove("nothing"),
        lambda: any_disk.rename("nothing", "something"),
    ):
        with pytest.raises(OSError) as caught:
            act()
        assert caught.value.errno == errno.ENOENT
    assert not any_disk.exists("nothing")


def test_directories(any_disk: Disk) -> None:
    any_disk.make_dir("topic-0/inner")
    any_disk.make_dir("topic-0/inner")
    for name in ("b", "a"):
        any_disk.open(f"topic-0/{name}", create=True).close()
    assert any_disk.list("topic-0") == ["a", "b", "inner"]
    any_disk.remove("topic-0/inner")
    with pytest.raises(OSError) as caught:
        any_disk.remove("topic-0")
    assert caught.value.errno == errno.ENOTEMPTY
    any_disk.sync_dir("topic-0")
    any_disk.sync_dir("")
    assert 0 < any_disk.free_bytes() <= any_disk.total_bytes()


def file_at(disk: Disk, path: str) -> None:
    disk.open(path, create=True).close()


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("full", "full/inner", errno.EINVAL),
        ("full", "full/inner/more", errno.EINVAL),
        ("file", "full", errno.EISDIR),
        ("empty", "file", errno.ENOTDIR),
        ("empty", "full", errno.ENOTEMPTY),
        ("file", "file/inner", errno.ENOTDIR),
        ("file", "nothing/inner", errno.ENOENT),
    ],
)
def test_renames_that_cannot_be(any_disk: Disk, old: str, new: str, code: int) -> None:
    any_disk.make_dir("full/inner")
    any_disk.make_dir("empty")
    file_at(any_disk, "file")
    with pytest.raises(OSError) as caught:
        any_disk.rename(old, new)
    assert caught.value.errno == code
    assert any_disk.list("") == ["empty", "file", "full"]
    assert any_disk.list("full") == ["inner"]


def test_renames_that_replace(any_disk: Disk) -> None:
    any_disk.make_dir("full/inner")
    any_disk.make_dir("empty")
    file_at(any_disk, "full/file")
    any_disk.rename("full", "empty")
    assert any_disk.list("") == ["empty"]
    any_disk.rename("empty/file", "empty/file")
    assert any_disk.list("empty") == ["file", "inner"]
    any_disk.rename("empty/inner", "beside")
    any_disk.rename("beside", "empty/back")
    assert any_disk.list("empty") == ["back", "file"]


def test_a_file_is_not_a_directory_and_a_directory_is_not_a_file(any_disk: Disk) -> None:
    any_disk.make_dir("directory")
    file_at(any_disk, "file")
    acts: list[tuple[Callable[[], object], int]] = [
        (lambda: any_disk.open("directory"), errno.EISDIR),
        (lambda: any_disk.list("file"), errno.ENOTDIR),
        (lambda: any_disk.make_dir("file/inner"), errno.ENOTDIR),
        (lambda: any_disk.open("file/inner", create=True), errno.ENOTDIR),
    ]
    for act, code in acts:
        with pytest.raises(OSError) as caught:
            act()
        assert caught.value.errno == code


def test_open_files_follow_renames(any_disk: Disk) -> None:
    any_disk.make_dir("t-0")
    file = any_disk.open("t-0/1.log", create=True)
    file.append(b"x")
    any_disk.rename("t-0/1.log", "t-0/1.log.deleted")
    assert file.path == "t-0/1.log.deleted"
    any_disk.rename("t-0", "t-0-delete")
    assert file.path == "t-0-delete/1.log.deleted"
    file.append(b"y")
    assert read_whole(any_disk, "t-0-delete/1.log.deleted") == b"xy"
    any_disk.remove("t-0-delete/1.log.deleted")
    assert file.read(0, 9) == b"xy"
    file.close()


def test_writes_atomically(any_disk: Disk) -> None:
    write_atomically(any_disk, "meta", b"one")
    write_atomically(any_disk, "meta", b"2")
    assert read_whole(any_disk, "meta") == b"2"
    assert any_disk.list("") == ["meta"]


# --- what only a real one has ------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "a/..", "nul\0"])
def test_paths_stay_inside(disk: RealDisk, path: str) -> None:
    with pytest.raises(PathEscapes):
        disk.open(path, create=True)
    with pytest.raises(PathEscapes):
        disk.rename("a", path)


def test_only_the_owner_reads(disk: RealDisk, tmp_path: Path) -> None:
    disk.make_dir("t-0")
    disk.open("t-0/a", create=True).close()
    assert (tmp_path / "t-0/a").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "t-0").stat().st_mode & 0o077 == 0


def test_short_writes_are_continued(disk: RealDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
    with_pieces = disk.open("a", create=True)
    with_pieces.append(b"0123456789")
    with_pieces.append(b"")
    monkeypatch.undo()
    assert with_pieces.read(0, 100) == b"0123456789"


def test_short_reads_are_continued(disk: RealDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    file = disk.open("a", create=True)
    file.append(b"0123456789")
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, position: pread(fd, min(size, 4), position))
    assert file.read(0, 10) == b"0123456789"
    assert file.read(5, 100) == b"56789"


def test_a_full_disk_is_enospc(disk: RealDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel writes what fits, and says ENOSPC only to the next call."""
    file = disk.open("a", create=True)
    write = os.write
    room = [4]

    def nearly_full(descriptor: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "full")
        written = write(descriptor, data[: room[0]])
        room[0] -= written
        return written

    monkeypatch.setattr(os, "write", nearly_full)
    with pytest.raises(OSError) as caught:
        file.append(b"0123456789")
    assert caught.value.errno == errno.ENOSPC
    assert file.size() == 4


def read_now(file: RealFile, position: int, size: int) -> bytes | None:
    buffer = bytearray(size)
    return bytes(buffer) if file.try_read_into(position, memoryview(buffer)) else None


def test_reads_at_once_what_is_cached(disk: RealDisk) -> None:
    file = disk.open("a", create=True)
    file.append(b"0123456789")
    assert read_now(file, 2, 5) == b"23456"
    assert read_now(file, 2, 50) is None  # there is no more


def _answering(error: int) -> object:
    def preadv(*_: object) -> int:
        raise OSError(error, os.strerror(error))

    return preadv


def test_a_cold_page_is_not_waited_for(disk: RealDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    file = disk.open("a", create=True)
    file.append(b"0123456789")
    disk.can_read_nowait = True
    monkeypatch.setattr(os, "preadv", _answering(errno.EAGAIN))
    assert read_now(file, 0, 10) is None
    assert disk.can_read_nowait


def test_a_file_system_without_the_flag_is_asked_once(
    disk: RealDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.open("a", create=True)
    file.append(b"0123456789")
    disk.can_read_nowait = True
    preadv = os.preadv
    asked: list[int] = []

    def without_flags(descriptor: int, buffers: list[memoryview], position: int, flags: int = 0) -> int:
        asked.append(flags)
        if flags:
            raise OSError(errno.EOPNOTSUPP, "no such flag here")
        return preadv(descriptor, buffers, position)

    monkeypatch.setattr(os, "preadv", without_flags)
    assert read_now(file, 0, 10) == b"0123456789"
    assert not disk.can_read_nowait
    assert read_now(file, 3, 2) == b"34"
    assert [bool(flags) for flags in asked] == [True, False, False]


def test_an_io_error_is_not_hidden(disk: RealDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    file = disk.open("a", create=True)
    disk.can_read_nowait = True
    monkeypatch.setattr(os, "preadv", _answering(errno.EIO))
    with pytest.raises(OSError) as caught:
        read_now(file, 0, 1)
    assert caught.value.errno == errno.EIO


def test_a_pin_outlives_its_file(disk: RealDisk) -> None:
    file = disk.open("a", create=True)
    file.append(b"0123456789")
    pin = file.pin()
    file.close()
    with pytest.raises(OSError):
        file.read(0, 1)
    disk.remove("a")
    assert pin.read(0, 10) == b"0123456789"
    pin.close()


def test_a_file_nobody_holds_closes_itself(disk: RealDisk) -> None:
    file: RealFile | None = disk.open("a", create=True)
    assert file is not None
    descriptor = file._descriptor
    os.fstat(descriptor)
    file = None
    with pytest.raises(OSError):
        os.fstat(descriptor)


def test_names_without_proc(disk: RealDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    file = disk.open("a", create=True)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert file.path == "a"
