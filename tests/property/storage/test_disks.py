"""The memory disk keeps what it promises to keep, and the faulty one breaks where it was told to."""

import errno
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.storage.disk import read_whole, write_atomically
from headrace.storage.faulty_disk import Crash, DiskCrashed, Fail, Fault, FaultyDisk, Flip
from headrace.storage.memory_disk import MemoryDisk


def after_loss(disk: MemoryDisk, tries: int = 60) -> list[dict[str, bytes]]:
    return [dict(disk.crash("lost", Random(seed)).files()) for seed in range(tries)]


def disk_with(path: str, data: bytes) -> MemoryDisk:
    disk = MemoryDisk()
    if "/" in path:
        disk.make_dir(path.rpartition("/")[0])
        disk.sync_dir("")
    write_atomically(disk, path, data)
    return disk


def test_a_killed_process_leaves_all_it_wrote_and_a_lost_machine_a_prefix() -> None:
    disk = disk_with("a", b"synced")
    disk.open("a").append(b"-more")
    assert dict(disk.crash("killed").files()) == {"a": b"synced-more"}
    found = {files["a"] for files in after_loss(disk, 200)}
    assert b"synced" in found
    assert b"synced-more" in found
    assert all(data.startswith(b"synced") for data in found)
    assert any(b"\0" in data for data in found), "a torn write is among them"


def test_a_killed_process_does_not_make_anything_durable() -> None:
    disk = disk_with("a", b"synced")
    disk.open("a").append(b"-more")
    assert {files["a"] for files in after_loss(disk.crash("killed"))} >= {b"synced", b"synced-more"}


def test_an_unsynced_name_may_vanish_and_a_synced_one_may_not() -> None:
    disk = MemoryDisk()
    file = disk.open("new", create=True)
    file.append(b"x")
    file.sync()
    found = after_loss(disk)
    assert {} in found
    assert {"new": b"x"} in found
    disk.sync_dir("")
    assert after_loss(disk, 5) == [{"new": b"x"}] * 5


def test_a_file_in_a_directory_whose_name_is_lost_is_lost() -> None:
    disk = MemoryDisk()
    disk.make_dir("p")
    disk.open("p/x", create=True).sync()
    disk.sync_dir("p")
    assert {} in after_loss(disk)


def test_a_rename_is_whole_or_did_not_happen() -> None:
    disk = disk_with("p/old", b"1")
    disk.rename("p/old", "p/new")
    found = after_loss(disk)
    assert {tuple(files) for files in found} == {("p/old",), ("p/new",)}


def test_a_replaced_file_keeps_its_old_content_until_the_name_is_synced() -> None:
    disk = disk_with("checkpoint", b"old")
    file = disk.open("checkpoint.tmp", create=True)
    file.append(b"new")
    file.sync()
    disk.rename("checkpoint.tmp", "checkpoint")
    found = after_loss(disk)
    assert {files["checkpoint"] for files in found} == {b"old", b"new"}
    disk.sync_dir("")
    assert after_loss(disk, 5) == [{"checkpoint": b"new"}] * 5


def test_an_unsynced_truncate_may_come_back() -> None:
    disk = disk_with("a", b"0123456789")
    file = disk.open("a")
    file.truncate(4)
    file.append(b"xy")
    found = {files["a"] for files in after_loss(disk)}
    assert b"0123456789" in found
    assert b"0123xy" in found
    file.sync()
    assert {files["a"] for files in after_loss(disk)} == {b"0123xy"}


def test_open_files_follow_renames_of_themselves_and_of_directories() -> None:
    disk = disk_with("p/a", b"1")
    file = disk.open("p/a")
    disk.rename("p/a", "p/b")
    disk.rename("p", "p-delete")
    assert file.path == "p-delete/b"
    file.append(b"2")
    assert read_whole(disk, "p-delete/b") == b"12"


def test_a_removed_file_is_readable_by_whoever_holds_it() -> None:
    disk = disk_with("a", b"1")
    file = disk.open("a")
    disk.remove("a")
    assert file.read(0, 9) == b"1"
    assert not disk.exists("a")
    file.close()
    with pytest.raises(OSError, match="descriptor"):
        file.read(0, 1)


def test_copies_do_not_see_each_other() -> None:
    disk = disk_with("a", b"1")
    copy = disk.clone()
    disk.open("a").append(b"2")
    copy.open("a").append(b"3")
    assert (read_whole(disk, "a"), read_whole(copy, "a")) == (b"12", b"13")


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda d: d.open("none"), errno.ENOENT),
        (lambda d: d.open("none/x", create=True), errno.ENOENT),
        (lambda d: d.open("p"), errno.EISDIR),
        (lambda d: d.list("none"), errno.ENOENT),
        (lambda d: d.remove("p"), errno.ENOTEMPTY),
        (lambda d: d.remove("none"), errno.ENOENT),
        (lambda d: d.rename("none", "x"), errno.ENOENT),
        (lambda d: d.sync_dir("none"), errno.ENOENT),
    ],
)
def test_errors_are_those_of_a_real_disk(call: Callable[[MemoryDisk], object], code: int) -> None:
    with pytest.raises(OSError) as raised:
        call(disk_with("p/a", b"1"))
    assert raised.value.errno == code


names = st.sampled_from(["a", "b", "c"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), names, st.binary(min_size=1, max_size=4)),
        st.tuples(st.just("truncate"), names, st.integers(0, 6)),
        st.tuples(st.just("sync"), names),
        st.tuples(st.just("rename"), names, names),
        st.tuples(st.just("remove"), names),
        st.tuples(st.just("sync_dir")),
    ),
    max_size=30,
)


def play(disk: MemoryDisk, step: tuple[Any, ...]) -> None:
    match step:
        case ("append", name, data):
            disk.open(name, create=True).append(data)
        case ("truncate", name, size):
            disk.open(name, create=True).truncate(size)
        case ("sync", name):
            disk.open(name, create=True).sync()
        case ("rename", old, new) if disk.exists(old):
            disk.rename(old, new)
        case ("remove", name) if disk.exists(name):
            disk.remove(name)
        case ("sync_dir",):
            disk.sync_dir("")


@given(steps, st.integers(0, 1 << 32))
def test_all_synced_is_all_kept_and_a_loss_repeats_with_its_seed(
    story: list[tuple[Any, ...]], seed: int
) -> None:
    disk = MemoryDisk()
    for step in story:
        play(disk, step)
    assert list(disk.crash("killed").files()) == list(disk.files())
    once, again = (dict(disk.crash("lost", Random(seed)).files()) for _ in range(2))
    assert once == again
    for name in disk.list(""):
        disk.open(name).sync()
    disk.sync_dir("")
    assert list(disk.crash("lost", Random(seed)).files()) == list(disk.files())


def test_a_crash_stops_at_its_call_and_for_good() -> None:
    disk = FaultyDisk(MemoryDisk(), [Fault(Crash(written=2), skip=2)])
    file = disk.open("a", create=True)
    file.append(b"one")
    with pytest.raises(DiskCrashed):
        file.append(b"two")
    with pytest.raises(DiskCrashed):
        disk.exists("a")
    assert disk.disk.open("a").read(0, 9) == b"onetw"
    assert [call.operation for call in disk.changes()] == ["create", "append", "append"]


def test_a_full_disk_takes_what_fits_and_more_after_a_removal() -> None:
    disk = FaultyDisk(MemoryDisk(), space_bytes=5)
    file = disk.open("a", create=True)
    with pytest.raises(OSError, match="space") as raised:
        file.append(b"1234567")
    assert raised.value.errno == errno.ENOSPC
    assert file.size() == 5
    file.truncate(3)
    file.append(b"xy")
    with pytest.raises(OSError):
        file.append(b"z")
    disk.remove("a")
    disk.open("b", create=True).append(b"12345")


def test_scripted_errors_strike_where_they_were_told() -> None:
    disk = FaultyDisk(
        MemoryDisk(),
        [
            Fault(Fail(errno.EIO, written=1), "append", path="log", skip=1),
            Fault(Fail(), "sync", path="index"),
            Fault(Flip(bit=9), "read"),
        ],
    )
    log, index = disk.open("log", create=True), disk.open("index", create=True)
    log.append(b"ab")
    with pytest.raises(OSError):
        log.append(b"cd")
    log.sync()
    with pytest.raises(OSError):
        index.sync()
    index.sync()
    assert log.read(0, 9) == b"a" + bytes([ord("b") ^ 2]) + b"c"
    assert log.read(0, 9) == b"abc"
