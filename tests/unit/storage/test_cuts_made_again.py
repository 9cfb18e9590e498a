"""Cuts of a log that meet a lack of space or descriptors at each of their calls, and are made again."""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import Any

import pytest

from headrace.storage.config import LogConfig
from headrace.storage.errors import DiskFull
from headrace.storage.faulty_disk import OPENS, SPACE_NEEDING, Fail, Fault, FaultyDisk
from headrace.storage.memory_disk import MemoryDisk
from headrace.storage.open_files import OpenFiles

FAULTS = {errno.EMFILE: OPENS, errno.ENOSPC: SPACE_NEEDING}
CALLS_MAX = 60


def told(scene: Any) -> tuple[Any, ...]:
    """What the log tells, and the snapshots of its producers on the disk."""
    producers = {one.producer_id: one.last_sequence for one in scene.log.producers()}
    log = scene.log
    return log.log_start_offset, log.log_end_offset, scene.bases(), producers, scene.names(".snapshot")


class Cut:
    """A log of ten batches, eight of them by one producer; `segment_bytes` decides on its segments."""

    def __init__(self, scene: Any, segment_bytes: int, files_max: int, *, is_durable: bool) -> None:
        self.scene = scene
        self.is_durable = is_durable
        scene.disk = self.disk = FaultyDisk(MemoryDisk(), [])
        scene.files = OpenFiles(files_max)
        scene.config = LogConfig(index_interval_bytes=1, segment_bytes=segment_bytes)
        scene.open()
        scene.append(2)
        for sequence in range(8):
            scene.write(7, sequence)
        scene.flush()
        scene.files.forget_directory(self.disk, scene.log.directory)

    def make(self, offset: int) -> None:
        if self.is_durable:
            self.scene.log.truncate_to(offset)
        else:
            self.scene.log.cut_to(offset, self.scene.wall_ms)
            self.scene.log.take_doomed()

    def outcome(self) -> tuple[Any, ...]:
        """At once; and after a stop, when others have written where the log was cut."""
        at_once = told(self.scene)
        for sequence in range(9):
            self.scene.write(8, sequence)
        self.scene.flush()
        self.scene.log.close(clean=True)
        end = self.scene.log.log_end_offset
        self.scene.files = OpenFiles()
        self.scene.open("clean", recovery_point=end)
        return at_once, told(self.scene)


@pytest.mark.parametrize("is_durable", [False, True], ids=["cut_to", "truncate_to"])
@pytest.mark.parametrize("segment_bytes", [250, 1 << 20])
@pytest.mark.parametrize("files_max", [1, 512])
@pytest.mark.parametrize("offset", [0, 4, 5, 9])
@pytest.mark.parametrize("code", FAULTS, ids=errno.errorcode.get)
def test_a_cut_that_is_made_again_is_complete(
    scene: Any, is_durable: bool, segment_bytes: int, files_max: int, offset: int, code: int
) -> None:
    plain = Cut(scene, segment_bytes, files_max, is_durable=is_durable)
    plain.make(offset)
    expected = plain.outcome()
    for number in range(CALLS_MAX):
        cut = Cut(scene, segment_bytes, files_max, is_durable=is_durable)
        fault = Fault(Fail(code), FAULTS[code], skip=number)
        cut.disk.faults.append(fault)
        try:
            cut.make(offset)
        except DiskFull:
            cut.make(offset)
        if fault.times:
            return  # it has struck each call
        assert cut.outcome() == expected, f"{errno.errorcode[code]} at call {number}"
    raise AssertionError("a cut makes fewer calls")


@pytest.mark.parametrize("is_durable", [False, True], ids=["cut_to", "truncate_to"])
@pytest.mark.parametrize("offset", [0, 4, 9])
@pytest.mark.parametrize("code", FAULTS, ids=errno.errorcode.get)
def test_what_a_cut_leaves_that_is_not_made_again_is_a_whole_log(
    scene: Any, is_durable: bool, offset: int, code: int
) -> None:
    """Another leader epoch begins before that, or the log is damaged and was cut by a start."""
    for number in range(CALLS_MAX):
        cut = Cut(scene, 250, 512, is_durable=is_durable)
        fault = Fault(Fail(code), FAULTS[code], skip=number)
        cut.disk.faults.append(fault)
        with suppress(DiskFull):
            cut.make(offset)
        if fault.times:
            return
        _, end, bases, producers, _ = told(scene)
        assert bases == ([0, *range(2, end)] if end else [])
        assert producers == ({7: end - 3} if end else {})
        after, expected = cut.outcome()[1][1:4], [*bases, *range(end, end + 9)]
        assert after == (end + 9, expected, {**producers, 8: 8}), f"{errno.errorcode[code]} at call {number}"
    raise AssertionError("a cut makes fewer calls")


def test_no_snapshot_of_what_was_cut_off_counts_though_the_cut_is_not_made_again(scene: Any) -> None:
    """Another leader epoch has begun before: this broker leads in it, and a producer goes on. Told that what
    it sends is there already, it would lose that.
    """
    cut = Cut(scene, 250, 512, is_durable=True)
    cut.disk.faults.append(Fault(Fail(errno.ENOSPC), "remove", ".snapshot", times=2))
    with pytest.raises(DiskFull):
        cut.make(4)
    end = scene.log.log_end_offset  # it has not come farther
    assert {one.producer_id: one.last_sequence for one in scene.log.producers()} == {7: end - 3}
    with pytest.raises(DiskFull):
        scene.write(7, end - 2)  # the file would be taken for the state of this record
    assert scene.write(7, end - 2).base_offset == end
    assert {one.producer_id: one.last_sequence for one in scene.log.producers()} == {7: end - 2}
