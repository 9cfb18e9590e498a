"""What stands in the three indexes, byte by byte, and what is found with them."""

from struct import Struct

from headrace.records.reader import batches
from headrace.storage.config import LogConfig
from headrace.storage.memory_disk import MemoryDisk
from headrace.storage.offset_index import OffsetIndex
from headrace.storage.open_files import OpenFiles
from headrace.storage.time_index import TimeIndex
from headrace.storage.transaction_index import AbortedTransaction, TransactionIndex


def positions(scene, name="00000000000000000000.log"):
    return {header.last_offset: at for at, header in batches(scene.content(name))}


def test_an_entry_names_the_last_offset_of_the_batch_at_its_position(scene):
    scene.config = LogConfig(index_interval_bytes=250)
    scene.open()
    for _ in range(12):
        scene.append(3, size=20)
    scene.log.close(clean=True)
    entries = list(Struct(">ii").iter_unpack(scene.content("00000000000000000000.index")))
    assert len(entries) >= 3
    place = positions(scene)
    assert all(place[offset] == position for offset, position in entries)
    size = len(scene.batch(3, size=20))
    # an entry comes with the first batch after more than the interval
    assert entries[0][1] == (250 // size + 1) * size


def test_the_time_index_rises_in_both_columns_and_ends_with_the_largest(scene):
    scene.config = LogConfig(index_interval_bytes=100)
    scene.open()
    for shift in (0, 5, 5, 3, 9, 1, 2, 8, 20, 4):
        scene.append(timestamp=scene.wall_ms + shift, size=60)
    scene.log.close(clean=True)
    entries = list(Struct(">qi").iter_unpack(scene.content("00000000000000000000.timeindex")))
    assert entries == sorted(set(entries))
    assert [timestamp for timestamp, _ in entries] == sorted({timestamp for timestamp, _ in entries})
    assert entries[-1] == (scene.wall_ms + 20, 8)


def test_a_batch_is_found_whichever_of_its_offsets_is_asked_for(scene):
    scene.config = LogConfig(segment_bytes=4000, index_interval_bytes=500)
    scene.open()
    for _ in range(60):
        scene.append(3, size=30)
    for offset in range(180):
        span = scene.log.read(offset, max_bytes=1, limit_offset=180, at_least_one=True)
        [(_, header)] = batches(span.read())
        assert header.base_offset == offset - offset % 3


def test_a_search_in_a_long_file_finds_every_entry():
    disk, files = MemoryDisk(), OpenFiles()
    index = OffsetIndex(disk, files, "a.index", 1000)
    index.create()
    for number in range(5000):
        index.add(1000 + number * 10 + 9, number * 100)
        if number == 4900:
            index.write_pending()
    for number in (0, 1, 511, 512, 513, 4899, 4900, 4901, 4999):
        assert index.floor(1000 + number * 10 + 9) == number * 100
        assert index.floor(1000 + number * 10 + 8) == max(number - 1, 0) * 100
        assert index.floor_position(number * 100 + 99) == number * 100
    index.cut_to(1000 + 4950 * 10)
    assert len(index) == 4950
    index.cut_to(1000 + 10 * 10)
    assert len(index) == 10
    assert [index.at(number)[1] for number in (0, -1)] == [0, 900]


def test_the_time_index_takes_larger_timestamps_only():
    index = TimeIndex(MemoryDisk(), OpenFiles(), "a.timeindex", 100)
    index.create()
    for timestamp, offset in ((50, 101), (50, 102), (40, 103), (60, 104)):
        index.add(timestamp, offset)
    assert [index.at(number) for number in range(len(index))] == [(50, 101), (60, 104)]
    assert index.last_below(50) == 99
    assert index.last_below(51) == 101
    assert index.last_below(61) == 104


def test_a_missing_or_foreign_index_is_made_anew_when_it_is_needed(scene):
    scene.config = LogConfig(segment_bytes=20_000)
    scene.open()
    for _ in range(60):
        scene.append(size=900)
    scene.log.close(clean=True)
    first, second = scene.names(".index")[:2]
    before = scene.content(first)
    scene.disk.remove(f"orders-0/{first}")
    file = scene.disk.open(f"orders-0/{second}")
    file.truncate(0)
    file.append(before)  # another segment's
    file.close()
    scene.files = OpenFiles()
    scene.open(recovery_point=60)
    assert scene.bases() == list(range(60))
    assert scene.content(first) == before
    place = positions(scene, second.replace(".index", ".log"))
    base = int(second[:20])
    entries = list(Struct(">ii").iter_unpack(scene.content(second)))
    assert entries
    assert all(place[base + relative] == position for relative, position in entries)


def test_reading_needs_no_more_open_files_than_the_budget_allows(scene):
    scene.config = LogConfig(segment_bytes=1000)
    scene.files = OpenFiles(3)
    scene.open()
    for _ in range(80):
        scene.append(size=50)
    assert scene.log.segment_count > 5
    assert scene.bases() == list(range(80))
    assert len(scene.files) <= 3


def test_an_aborted_transaction_touches_what_lies_from_its_first_offset_to_its_marker():
    disk = MemoryDisk()
    disk.make_dir("t-0")
    index = TransactionIndex(disk, OpenFiles(), "t-0/0.txnindex")
    early, late = AbortedTransaction(7, 2, 5, 6), AbortedTransaction(8, 8, 10, 11)
    for one in (early, late):
        index.add(one)
    assert index.overlapping(0, 2) == ([], True)
    assert index.overlapping(0, 3) == ([early], True)
    assert index.overlapping(5, 9) == ([early, late], True), "its marker is at 5"
    assert index.overlapping(6, 9) == ([late], True)
    assert index.overlapping(10, 20) == ([late], False)
    assert index.overlapping(11, 20) == ([], False)
