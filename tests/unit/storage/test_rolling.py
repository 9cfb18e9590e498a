"""When a segment is full, old or out of room in its indexes, the next one begins where it ended."""

import errno

import pytest

from headrace.storage.config import LogConfig
from headrace.storage.errors import DiskFull, RecordListTooLarge
from headrace.storage.faulty_disk import Fail, Fault, FaultyDisk
from headrace.storage.file_list import FILE_LIST
from headrace.storage.open_files import OpenFiles

HOUR_MS = 3_600_000


def bases_of_segments(scene):
    return [int(name[:20]) for name in scene.names(".log")]


def test_rolls_before_a_segment_would_exceed_its_size(scene):
    scene.config = LogConfig(segment_bytes=1000)
    scene.open()
    size = len(scene.batch(size=300))
    for _ in range(7):
        scene.append(size=300)
    per_segment = 1000 // size
    assert bases_of_segments(scene) == list(range(0, 7, per_segment))
    assert scene.bases() == list(range(7))


def test_a_batch_larger_than_a_segment_is_refused(scene):
    scene.config = LogConfig(segment_bytes=1000)
    scene.open()
    with pytest.raises(RecordListTooLarge):
        scene.append(size=1000)
    scene.append()
    assert scene.bases() == [0]


def test_a_batch_larger_than_a_segment_is_refused_behind_others_too(scene):
    """It is the same batch, whatever lies before it; and no segment begins for it."""
    scene.config = LogConfig(segment_bytes=1000)
    scene.open()
    scene.append()
    with pytest.raises(RecordListTooLarge, match=r"more than segment\.bytes=1000"):
        scene.append(size=1000)
    scene.append()
    assert scene.bases() == [0, 1]
    assert bases_of_segments(scene) == [0]


def test_rolls_when_the_timestamps_of_the_records_span_segment_ms(scene):
    scene.config = LogConfig(segment_ms=HOUR_MS)
    scene.open()
    start = scene.wall_ms
    for minutes in (0, 30, 60, 61):
        scene.wall_ms = start + minutes * 60_000
        scene.append()
    assert bases_of_segments(scene) == [0, 3]


def test_jitter_rolls_earlier(scene):
    scene.config = LogConfig(segment_ms=HOUR_MS)
    scene.open(roll_jitter_ms=HOUR_MS // 2)
    start = scene.wall_ms
    for minutes in (0, 20, 31):
        scene.wall_ms = start + minutes * 60_000
        scene.append()
    assert bases_of_segments(scene) == [0, 2]


def test_the_age_of_a_segment_is_known_again_after_a_restart(scene):
    scene.config = LogConfig(segment_ms=HOUR_MS)
    scene.open()
    scene.append()
    scene.log.close(clean=True)
    scene.wall_ms += HOUR_MS + 1
    scene.open(recovery_point=1)
    scene.append()
    assert bases_of_segments(scene) == [0, 1]


def test_rolls_when_an_index_is_full(scene):
    scene.config = LogConfig(segment_index_bytes=36, index_interval_bytes=0)
    scene.open()
    for _ in range(8):
        scene.wall_ms += 1
        scene.append()
    assert len(bases_of_segments(scene)) > 1
    assert all(len(scene.content(name)) <= 36 for name in scene.names("index"))
    assert scene.bases() == list(range(8))


def test_rolls_before_a_relative_offset_exceeds_an_int32(scene):
    scene.open()
    far = (1 << 31) + 5
    for offset in (0, far):
        batch = memoryview(bytearray(scene.batch(base_offset=offset, leader_epoch=0)))
        scene.log.append_batches(batch, wall_ms=scene.wall_ms)
    assert bases_of_segments(scene) == [0, far]
    assert scene.log.log_end_offset == far + 1
    scene.log.roll(scene.wall_ms)
    span = scene.log.read(far, max_bytes=100, limit_offset=far + 1, at_least_one=True)
    assert span is not None


def test_dynamic_settings_take_effect_with_the_next_append(scene):
    scene.open()
    scene.append(size=300)
    scene.log.configure(LogConfig(segment_bytes=400))
    scene.append(size=300)
    assert bases_of_segments(scene) == [0, 1]


def test_an_explicit_roll_of_an_empty_segment_does_nothing(scene):
    scene.open()
    scene.log.roll(scene.wall_ms)
    assert scene.names(".log") == []
    scene.append()
    scene.log.roll(scene.wall_ms)
    scene.log.roll(scene.wall_ms)
    assert bases_of_segments(scene) == [0, 1]


class TestFilesMadeAhead:
    """What a job has created before the roll: the caller of the roll, the event loop, only renames it."""

    def prepare(self, scene):
        scene.log.complete_next_segment(scene.log.next_segment_job().run(scene.disk))

    def test_a_roll_creates_nothing_that_was_made_ahead(self, scene):
        scene.disk = FaultyDisk(scene.disk)
        scene.open()
        scene.append()
        self.prepare(scene)
        before = len(scene.disk.calls)
        scene.log.roll(scene.wall_ms)
        calls = [call for call in scene.disk.calls[before:] if not call.path.endswith(".snapshot")]
        of_list = [call.operation for call in calls if call.path.endswith(FILE_LIST)]
        calls = [call for call in calls if not call.path.endswith(FILE_LIST)]
        assert [call.operation for call in calls if call.operation != "append"] == ["open", *["rename"] * 3]
        assert calls[-1].path.endswith(".log"), "the log comes last"
        assert of_list == ["open", "append"]
        scene.append()
        assert bases_of_segments(scene) == [0, 1]
        assert scene.bases() == [0, 1]
        assert scene.names(".tmp") == []

    def test_they_are_used_once(self, scene):
        scene.open()
        scene.append()
        self.prepare(scene)
        for _ in range(2):
            scene.log.roll(scene.wall_ms)
            scene.append()
        assert bases_of_segments(scene) == [0, 1, 2]

    def test_indexes_are_written_to_them(self, scene):
        scene.config = LogConfig(index_interval_bytes=0)
        scene.open()
        scene.append()
        self.prepare(scene)
        scene.log.roll(scene.wall_ms)
        for _ in range(5):
            scene.append()
        scene.log.roll(scene.wall_ms)
        assert len(scene.content("00000000000000000001.index")) == 4 * 8
        scene.files = OpenFiles()
        scene.open("killed")
        assert scene.bases() == list(range(6))

    def test_they_fit_a_roll_that_came_before_they_were_there(self, scene):
        scene.open()
        scene.append()
        job = scene.log.next_segment_job()
        scene.log.roll(scene.wall_ms)
        scene.append()
        scene.log.complete_next_segment(job.run(scene.disk))
        scene.log.roll(scene.wall_ms)
        scene.append()
        assert bases_of_segments(scene) == [0, 1, 2]
        assert scene.names(".tmp") == []

    def test_a_start_removes_them(self, scene):
        scene.open()
        scene.append()
        self.prepare(scene)
        assert len(scene.names(".tmp")) == 3
        scene.files = OpenFiles()
        scene.open("killed")
        assert scene.names(".tmp") == []
        assert scene.bases() == [0]

    @pytest.mark.parametrize("suffix", [".index", ".timeindex", ".log"])
    def test_one_that_is_missing_is_created_by_the_roll(self, scene, suffix):
        scene.open()
        scene.append()
        self.prepare(scene)
        scene.disk.remove(f"orders-0/00000000000000000000.next{suffix}.tmp")
        scene.log.roll(scene.wall_ms)
        scene.append()
        assert scene.bases() == [0, 1]
        assert {"00000000000000000001.index", "00000000000000000001.timeindex"} <= set(scene.names())

    @pytest.mark.parametrize("skip", range(3))
    def test_a_roll_without_space_leaves_no_new_segment(self, scene, skip):
        """An empty log behind one that still grows would hide from a restart what is appended there."""
        scene.disk = FaultyDisk(scene.disk)
        scene.open()
        scene.append()
        self.prepare(scene)
        scene.disk.faults.append(Fault(Fail(errno.ENOSPC), "rename", skip=skip))
        with pytest.raises(DiskFull):
            scene.log.roll(scene.wall_ms)
        assert bases_of_segments(scene) == [0]
        scene.append()
        self.prepare(scene)
        scene.log.roll(scene.wall_ms)
        scene.append()
        assert bases_of_segments(scene) == [0, 2]
        scene.files = OpenFiles()
        scene.open("killed")
        assert scene.bases() == [0, 1, 2]

    def test_they_are_wanted_before_the_segment_is_full_or_old(self, scene):
        scene.config = LogConfig(segment_bytes=1000, segment_ms=HOUR_MS)
        scene.open()
        assert not scene.log.wants_next_segment(scene.wall_ms)
        scene.append()
        scene.flush()
        assert not scene.log.wants_next_segment(scene.wall_ms)
        assert scene.log.wants_next_segment(scene.wall_ms + HOUR_MS - 10_000)
        while scene.log.active.size < 750:
            assert not scene.log.wants_next_segment(scene.wall_ms)
            scene.append()
            scene.flush()
        assert scene.log.wants_next_segment(scene.wall_ms)
        self.prepare(scene)
        assert not scene.log.wants_next_segment(scene.wall_ms)

    def test_a_log_that_grows_fast_wants_them_at_once(self, scene):
        scene.config = LogConfig(segment_bytes=1000)
        scene.open()
        scene.append(size=150)
        assert scene.log.wants_next_segment(scene.wall_ms)
        rolls = []
        scene.log.rolled = lambda: rolls.append(scene.wall_ms)
        for wait_ms in (19_000, 21_000, 1_000):
            scene.wall_ms += wait_ms
            scene.log.roll(scene.wall_ms)
            scene.append()
        assert len(rolls) == 2, "a segment that lasted long is followed by another such"
