"""Ranges are cut where batches begin, into parts of about so many bytes, across segments."""

from itertools import pairwise

import pytest

from headrace.records.reader import batches
from headrace.storage.config import LogConfig


@pytest.fixture(params=["tail", "cold"])
def log(request, scene):
    """Forty batches of three records in several segments."""
    scene.size = len(scene.batch(3, size=40))
    scene.config = LogConfig(index_interval_bytes=1, segment_bytes=9 * scene.size)
    scene.open()
    for _ in range(40):
        scene.append(3, size=40)
    if request.param == "cold":
        scene.log.close(clean=True)
        scene.open(recovery_point=120)
    assert scene.log.segment_count == 5
    return scene


def sizes(log, start, end, cuts):
    """Bytes of the batches of each part, counted by reading them."""
    edges = [start, *cuts, end]
    found = []
    for first, last in pairwise(edges):
        size = 0
        while first < last:
            span = log.log.read(first, max_bytes=1, limit_offset=120, at_least_one=True)
            ((_, header),) = batches(span.read())
            size += header.size
            first = header.next_offset
        found.append(size)
    return found


@pytest.mark.parametrize("batches_per_part", [1, 2, 4, 7, 9, 13])
def test_parts_are_about_as_large_as_wanted(log, batches_per_part):
    cuts = log.log.split_offsets(0, 120, batches_per_part * log.size)
    assert cuts == sorted(set(cuts))
    assert all(cut % 3 == 0 for cut in cuts), "a batch begins at each"
    found = sizes(log, 0, 120, cuts)
    assert sum(found) == 40 * log.size
    assert max(found) <= (batches_per_part + 2) * log.size


def test_only_the_range_is_cut(log):
    cuts = log.log.split_offsets(31, 62, 2 * log.size)
    assert cuts
    assert all(31 < cut < 62 for cut in cuts)
    assert max(sizes(log, 31, 62, cuts)) <= 4 * log.size


def test_what_is_small_is_not_cut(log):
    assert log.log.split_offsets(0, 120, 41 * log.size) == []
    assert log.log.split_offsets(5, 5, 1) == []
    assert log.log.split_offsets(0, 3, 1) == []


def test_without_index_entries_segments_are_the_parts(scene):
    scene.config = LogConfig(index_interval_bytes=1 << 20, segment_bytes=1 << 14)
    scene.open()
    for _ in range(40):
        scene.append(1, size=4000)
    assert scene.log.split_offsets(0, 40, 1) == list(range(4, 40, 4))
