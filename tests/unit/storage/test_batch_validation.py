"""What a topic's settings ask of a batch before it is written."""

import copy

import pytest

from headrace.records.batch import MAX_TIMESTAMP_AT, read_header, renew_crc
from headrace.records.builder import build_batch
from headrace.records.errors import BadRecords, BatchTooLarge, CorruptBatch, InvalidBatch, InvalidRecords
from headrace.records.reader import read_rows
from headrace.storage import batch_validation
from headrace.storage.config import LogConfig
from headrace.storage.errors import InvalidTimestamp, OffsetsNotRising

HOUR_MS = 3_600_000


def stored(scene, offset=0):
    span = scene.log.read(offset, max_bytes=1, limit_offset=scene.log.log_end_offset, at_least_one=True)
    data = span.read()
    return data, read_header(data)


def test_offset_and_epoch_are_stamped_and_the_rest_kept(scene):
    scene.open()
    scene.append(2)
    batch = scene.batch(3)
    scene.send(batch, leader_epoch=9)
    data, header = stored(scene, 2)
    assert (header.base_offset, header.leader_epoch) == (2, 9)
    assert data[8:12] == batch[8:12]
    assert data[16:] == batch[16:]


def test_log_append_time_stamps_the_batch(scene):
    scene.config = LogConfig(message_timestamp_type="LogAppendTime")
    scene.open()
    appended = scene.append(2, timestamp=5)
    assert appended.log_append_time_ms == scene.wall_ms
    data, header = stored(scene)
    assert header.is_log_append_time
    assert header.max_timestamp == scene.wall_ms
    assert {row[1] for row in read_rows(data, 0, header)} == {scene.wall_ms}
    assert scene.log.offset_for_timestamp(scene.wall_ms, 2).offset == 0


def test_create_time_is_the_producers(scene):
    scene.open()
    assert scene.append(timestamp=5).log_append_time_ms == -1
    assert stored(scene)[1].max_timestamp == 5


def test_producers_may_not_stamp_log_append_time(scene):
    scene.open()
    with pytest.raises(InvalidTimestamp):
        scene.append(append_time=scene.wall_ms)


def test_timestamps_too_far_from_the_clock_are_refused(scene):
    scene.config = LogConfig(
        message_timestamp_after_max_ms=HOUR_MS, message_timestamp_before_max_ms=2 * HOUR_MS
    )
    scene.open()
    for shift in (HOUR_MS, -2 * HOUR_MS):
        scene.append(timestamp=scene.wall_ms + shift)
    for shift in (HOUR_MS + 1, -2 * HOUR_MS - 1):
        with pytest.raises(InvalidTimestamp):
            scene.append(timestamp=scene.wall_ms + shift)
    late = [(scene.wall_ms, b"k", b"", ()), (scene.wall_ms - 3 * HOUR_MS, b"k", b"", ())]
    with pytest.raises(InvalidTimestamp):
        scene.send(build_batch(late))
    scene.append(timestamp=-1)


@pytest.mark.parametrize(("name", "codec"), [("uncompressed", 0), ("gzip", 1), ("lz4", 3), ("zstd", 4)])
def test_another_codec_is_applied_and_the_records_stay(scene, name, codec):
    scene.config = LogConfig(compression_type=name)
    scene.open()
    scene.append(5, size=200, codec=2)
    data, header = stored(scene)
    assert header.codec == codec
    assert [(row[0], row[3]) for row in read_rows(data, 0, header)] == [(n, bytes(200)) for n in range(5)]
    scene.append(size=200, codec=codec)
    assert scene.bases() == [0, 5]


def test_compacted_topics_refuse_records_without_a_key(scene):
    scene.config = LogConfig(cleanup_policy=frozenset({"compact"}))
    scene.open()
    with pytest.raises(InvalidBatch):
        scene.send(build_batch([(scene.wall_ms, b"k", b"", ()), (scene.wall_ms, None, b"", ())]))
    scene.append()
    assert scene.log.log_end_offset == 1


def test_records_are_opened_where_the_topic_asks_for_it(scene):
    bad = bytearray(scene.batch(2, size=50))
    bad[62:64] = b"\xff\xff"
    renew_crc(bad, 0)
    scene.open()
    scene.send(bytes(bad))
    scene.log.configure(LogConfig(validate_records=True))
    with pytest.raises(BadRecords):
        scene.send(bytes(bad))


def test_size_and_checksum_are_checked(scene):
    scene.config = LogConfig(max_message_bytes=200)
    scene.open()
    with pytest.raises(BatchTooLarge):
        scene.append(size=200)
    damaged = bytearray(scene.batch())
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatch):
        scene.send(bytes(damaged))
    with pytest.raises(InvalidBatch):
        scene.send(scene.batch() + scene.batch())
    with pytest.raises(InvalidBatch):
        scene.send(b"")
    assert scene.log.log_end_offset == 0


def test_batches_from_a_leader_keep_offsets_epochs_and_gaps(scene):
    scene.open()
    records = scene.batch(2, base_offset=5, leader_epoch=3) + scene.batch(1, base_offset=9, leader_epoch=4)
    scene.log.append_batches(memoryview(bytearray(records)), wall_ms=scene.wall_ms)
    assert (scene.log.log_start_offset, scene.log.log_end_offset) == (5, 10)
    assert scene.bases() == [5, 9]
    assert scene.log.epoch_end_offset(3) == (3, 9)
    with pytest.raises(OffsetsNotRising):
        scene.log.append_batches(memoryview(bytearray(records)), wall_ms=scene.wall_ms)


def test_transactions_of_a_leader_are_followed(scene):
    scene.open()
    records = scene.batch(
        1, leader_epoch=0, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    scene.log.append_batches(memoryview(bytearray(records)), wall_ms=scene.wall_ms)
    assert scene.log.first_unstable_offset == 0
    assert scene.write(7, 0, transactional=True).is_duplicate


def test_so_many_bad_records_are_named_and_no_more(scene, monkeypatch):
    monkeypatch.setattr(batch_validation, "RECORD_ERRORS_MAX", 5)
    scene.config = LogConfig(cleanup_policy=frozenset({"compact"}))
    scene.open()
    with pytest.raises(InvalidRecords, match="rejected due to 9 record errors in total") as caught:
        scene.send(build_batch([(scene.wall_ms, None, b"v", ())] * 9))
    assert [index for index, _ in caught.value.record_errors] == [0, 1, 2, 3, 4]


def test_what_a_job_says_of_records_comes_through_a_pipe():
    """A validation job runs in another process."""
    for fault in (InvalidRecords("all wrong", ((3, "no key"),)), InvalidTimestamp("late", ((1, "late"),))):
        again = copy.copy(fault)  # made from the same pieces as on the other side of the pipe
        assert (type(again), str(again)) == (type(fault), str(fault))
        assert again.record_errors == fault.record_errors


def test_a_header_that_claims_a_time_of_no_record_is_refused(scene):
    scene.config = LogConfig(message_timestamp_after_max_ms=HOUR_MS)
    scene.open()
    batch = bytearray(build_batch([(scene.wall_ms, b"k", b"", ())]))
    batch[MAX_TIMESTAMP_AT : MAX_TIMESTAMP_AT + 8] = (scene.wall_ms + 2 * HOUR_MS).to_bytes(8, "big")
    renew_crc(batch, 0)
    with pytest.raises(InvalidTimestamp) as caught:
        scene.send(bytes(batch))
    assert caught.value.record_errors == ()
