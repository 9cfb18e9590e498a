"""The leader-epoch cache as Kafka 4.3.1 answers, and producer snapshots byte by byte."""

import pytest
from crc32c import crc32c

from headrace.storage.leader_epochs import LeaderEpochs
from headrace.storage.open_files import OpenFiles
from headrace.storage.producer_state import ProducerState
from headrace.storage.snapshots import DamagedSnapshot, decode_snapshot, encode_snapshot


def test_answers_as_kafka_does():
    # the same calls against Kafka's own LeaderEpochFileCache gave these answers
    epochs = LeaderEpochs()
    for epoch, start in ((2, 10), (4, 20), (6, 20)):
        epochs.assign(epoch, start)
    assert epochs.entries() == [(2, 10), (6, 20)]
    answers = {epoch: epochs.end_offset(epoch, 30) for epoch in range(-1, 8)}
    assert answers == {
        -1: (-1, -1),
        0: (0, 10),
        1: (1, 10),
        2: (2, 20),
        3: (2, 20),
        4: (2, 20),
        5: (2, 20),
        6: (6, 30),
        7: (-1, -1),
    }
    epochs.truncate_start(15)
    assert epochs.entries() == [(2, 15), (6, 20)]
    epochs.truncate_start(25)
    assert epochs.entries() == [(6, 25)]
    epochs.assign(7, 30)
    epochs.truncate_end(30)
    assert epochs.entries() == [(6, 25)]


def test_an_older_epoch_or_start_displaces_what_it_contradicts():
    epochs = LeaderEpochs([(1, 0), (2, 10), (5, 20)])
    epochs.assign(3, 15)
    assert epochs.entries() == [(1, 0), (2, 10), (3, 15)]
    epochs.assign(3, 17)
    assert epochs.entries() == [(1, 0), (2, 10), (3, 15)]


def test_a_new_epoch_is_on_the_disk_before_its_first_batch(scene):
    scene.open()
    scene.append(leader_epoch=1)
    scene.log.assign_epoch(4)
    assert scene.log.latest_epoch == 4
    assert scene.content("leader-epoch-checkpoint") == b"0\n1\n1 0\n"
    scene.append(leader_epoch=4)
    assert scene.content("leader-epoch-checkpoint") == b"0\n2\n1 0\n4 1\n"
    scene.files = OpenFiles()
    scene.open("killed")
    assert scene.log.epoch_end_offset(2) == (1, 1)
    assert [scene.log.epoch_at(offset) for offset in (0, 1)] == [1, 4]


def test_truncation_takes_epochs_along(scene):
    scene.open()
    for epoch in (1, 2, 3):
        scene.append(leader_epoch=epoch)
    scene.log.truncate_to(1)
    assert scene.log.latest_epoch == 1
    assert scene.content("leader-epoch-checkpoint") == b"0\n1\n1 0\n"
    scene.append(leader_epoch=5)
    assert scene.log.epoch_end_offset(1) == (1, 1)


def test_a_checkpoint_that_a_lost_machine_cut_off_is_made_anew(scene):
    """Half of an offset is an offset, too: readers would be told that what they read was truncated."""
    scene.open()
    for epoch in (0, 1):
        for _ in range(12):
            scene.append(leader_epoch=epoch)
    path = "orders-0/leader-epoch-checkpoint"
    assert scene.content("leader-epoch-checkpoint") == b"0\n2\n0 0\n1 12\n"
    for kept in range(13):
        scene.disk.open(path).truncate(kept)
        scene.files = OpenFiles()
        scene.open("lost", recovery_point=24)
        assert scene.log.epoch_end_offset(0) == (0, 12)
        assert scene.log.epoch_end_offset(1) == (1, 24)


def test_a_snapshot_is_kafkas_byte_for_byte():
    state = ProducerState()
    state.add_batch(7, 2, 40, 100, 4, 1_700_000_000_000, 0, is_transactional=True)
    body = (
        (1).to_bytes(4, "big")
        + (7).to_bytes(8, "big")
        + (2).to_bytes(2, "big")
        + (44).to_bytes(4, "big")
        + (104).to_bytes(8, "big")
        + (4).to_bytes(4, "big")
        + (1_700_000_000_000).to_bytes(8, "big")
        + (-1).to_bytes(4, "big", signed=True)
        + (100).to_bytes(8, "big")
    )
    assert encode_snapshot(state) == b"\x00\x01" + crc32c(body).to_bytes(4, "big") + body
    assert len(encode_snapshot(ProducerState())) == 10  # as long as the one Kafka leaves beside an idle log


def test_a_snapshot_brings_back_what_it_was_made_of():
    state = ProducerState()
    for sequence in range(7):
        state.add_batch(7, 0, sequence, sequence, 0, 1000, 5, is_transactional=False)
    state.add_batch(8, 1, 0, 7, 2, 1000, 5, is_transactional=True)
    state.add_batch(9, 0, 0, 10, 0, 1000, 5, is_transactional=True)
    state.end_transaction(9, 3, 6, 11, 1001, 5)
    again = decode_snapshot(encode_snapshot(state), 5)
    assert encode_snapshot(again) == encode_snapshot(state)
    assert again.first_open_offset == 7
    known = again.check(7, 0, 3, 0, is_transactional=False)
    assert known is not None
    assert known.base_offset == 3
    assert again.entries[9].epoch == 3
    assert again.entries[9].coordinator_epoch == 6


@pytest.mark.parametrize("damage", [b"", b"\x00\x01", b"\x00\x02" + bytes(8), b"\x00\x01" + bytes(8)])
def test_anything_else_is_damaged(damage):
    with pytest.raises(DamagedSnapshot):
        decode_snapshot(damage, 0)


def test_every_flipped_bit_is_found():
    state = ProducerState()
    state.add_batch(7, 2, 40, 100, 4, 1_700_000_000_000, 0, is_transactional=True)
    whole = encode_snapshot(state)
    for bit in range(len(whole) * 8):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedSnapshot):
            decode_snapshot(bytes(damaged), 0)
