"""Markers, crashes and time: what is left over is taken up again, and nothing stays for ever."""

from __future__ import annotations

import pytest

from harness.transaction_machine import COORDINATOR_EPOCH, MachineCoordinator
from headrace.base.time import Instant
from headrace.machines.transactions.settings import TransactionSettings
from headrace.machines.transactions.timeouts import SLACK, Timeouts
from headrace.machines.transactions.transaction import State
from headrace.machines.transactions.transactions import TOMBSTONES_MAX
from headrace.protocol.coordinator_records.transactions import TransactionLogKey
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest

HOUR_S, DAY_S = 3600, 86400


def begin(
    coordinator: MachineCoordinator, transactional_id: str, timeout_ms: int = 60_000
) -> tuple[int, int]:
    """Opens a transaction; its producer."""
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
    reply = coordinator.init(request, 5)
    producer = reply.producer_id, reply.producer_epoch
    add(coordinator, transactional_id, producer)
    return producer


def add(coordinator: MachineCoordinator, transactional_id: str, producer: tuple[int, int]) -> None:
    added = coordinator.machine.add_partitions(
        coordinator.clock.now(),
        transactional_id,
        *producer,
        [("t", 0)],
        verify_only=False,
        transaction_version=2,
    )
    assert coordinator.carry_out(added) == {("t", 0): ErrorCode.NONE}


def end(
    coordinator: MachineCoordinator, transactional_id: str, producer: tuple[int, int], version: int = 5
) -> None:
    request = EndTxnRequest(
        transactional_id=transactional_id, producer_id=producer[0], producer_epoch=producer[1], committed=True
    )
    assert coordinator.end(request, version).error_code == ErrorCode.NONE


def test_markers_are_ordered_again_after_a_crash() -> None:
    coordinator = MachineCoordinator()
    end(coordinator, "a", begin(coordinator, "a"))
    begin(coordinator, "open")
    (first,) = coordinator.orders
    coordinator.crash()
    (again,) = coordinator.orders
    assert (again.transactional_id, again.producer_id, again.epoch) == ("a", first.producer_id, first.epoch)
    assert (again.is_commit, again.partitions, again.coordinator_epoch) == (
        True,
        [("t", 0)],
        COORDINATOR_EPOCH,
    )
    # what the machine before had ordered is not what this one waits for
    assert coordinator.machine.markers_written(coordinator.clock.now(), first).records == []
    coordinator.write_markers()
    assert coordinator.transaction("a").state is State.COMPLETE_COMMIT


@pytest.mark.parametrize("version", [4, 5])
def test_markers_of_an_earlier_transaction_do_not_complete_the_next(version: int) -> None:
    """In version 1 both have the same producer id and epoch."""
    coordinator = MachineCoordinator()
    producer = begin(coordinator, "a")
    end(coordinator, "a", producer, version)
    (earlier,) = coordinator.orders
    coordinator.write_markers()
    after = coordinator.transaction("a")
    producer = after.producer_id, after.producer_epoch
    add(coordinator, "a", producer)
    end(coordinator, "a", producer, version)
    assert coordinator.machine.markers_written(coordinator.clock.now(), earlier).records == []
    assert coordinator.transaction("a").state is State.PREPARE_COMMIT


def test_open_transaction_is_aborted_at_its_deadline_and_not_before() -> None:
    coordinator = MachineCoordinator()
    begin(coordinator, "slow", timeout_ms=5000)
    end(coordinator, "quick", begin(coordinator, "quick", timeout_ms=1000))
    assert coordinator.machine.deadline() == coordinator.clock.now().after_ms(5000)
    coordinator.clock.advance(4.999)
    assert coordinator.wake() == []
    coordinator.clock.advance(0.001)
    coordinator.wake()
    assert coordinator.transaction("slow").state is State.PREPARE_ABORT
    coordinator.write_markers()
    assert coordinator.transaction("slow").state is State.COMPLETE_ABORT
    assert coordinator.transaction("quick").state is State.COMPLETE_COMMIT


def test_deadline_survives_a_crash() -> None:
    coordinator = MachineCoordinator()
    begin(coordinator, "a", timeout_ms=10_000)
    coordinator.clock.advance(4)
    coordinator.crash()
    assert coordinator.machine.deadline() == coordinator.clock.now().after_ms(6000)


def test_deadline_that_passed_while_nobody_was_there() -> None:
    coordinator = MachineCoordinator()
    begin(coordinator, "a", timeout_ms=10_000)
    coordinator.clock.advance(HOUR_S)
    coordinator.crash()
    coordinator.wake()
    assert coordinator.transaction("a").state is State.PREPARE_ABORT


def test_wall_clock_that_jumps_aborts_nobody() -> None:
    coordinator = MachineCoordinator()
    begin(coordinator, "a", timeout_ms=10_000)
    coordinator.clock.wall_ms += HOUR_S * 1000
    assert coordinator.wake() == []
    assert coordinator.machine.deadline() == coordinator.clock.now().after_ms(10_000)


def test_wall_clock_that_was_set_back_prolongs_nothing() -> None:
    coordinator = MachineCoordinator()
    begin(coordinator, "a", timeout_ms=10_000)
    coordinator.clock.wall_ms -= HOUR_S * 1000
    coordinator.crash()
    assert coordinator.machine.deadline() == coordinator.clock.now().after_ms(10_000)


def test_unused_ids_are_forgotten_but_never_in_a_transaction() -> None:
    coordinator = MachineCoordinator(TransactionSettings(transaction_max_timeout_ms=30 * DAY_S * 1000))
    begin(coordinator, "open", timeout_ms=20 * DAY_S * 1000)
    end(coordinator, "ended", begin(coordinator, "ended"))
    coordinator.write_markers()
    end(coordinator, "ending", begin(coordinator, "ending"))
    coordinator.init(InitProducerIdRequest(transactional_id="empty", transaction_timeout_ms=1000), 5)
    coordinator.clock.advance(6 * DAY_S)
    coordinator.init(InitProducerIdRequest(transactional_id="used", transaction_timeout_ms=1000), 5)
    assert coordinator.wake() == []
    coordinator.clock.advance(DAY_S + HOUR_S)
    coordinator.wake()
    assert set(coordinator.machine.state()) == {"open", "ending", "used"}
    key = TransactionLogKey(transactional_id="ended")
    assert [record.value for record in coordinator.records if record.key == key][-1] is None
    coordinator.crash()


def test_expiration_is_looked_for_once_an_interval() -> None:
    coordinator = MachineCoordinator()
    assert coordinator.machine.deadline() == coordinator.clock.now().after_ms(HOUR_S * 1000)
    coordinator.clock.advance(HOUR_S)
    assert coordinator.wake() == []
    assert coordinator.machine.deadline() == coordinator.clock.now().after_ms(HOUR_S * 1000)


def test_tombstones_come_in_batches_that_fit() -> None:
    coordinator = MachineCoordinator()
    for number in range(2 * TOMBSTONES_MAX + 1):
        request = InitProducerIdRequest(transactional_id=f"id-{number}", transaction_timeout_ms=1000)
        coordinator.init(request, 5)
    coordinator.clock.advance(7 * DAY_S)
    sizes = [len(decision.records) for decision in coordinator.wake()]
    assert sizes == [TOMBSTONES_MAX, TOMBSTONES_MAX, 1]
    assert coordinator.machine.state() == {}


def test_deadlines_without_a_meaning_do_not_pile_up() -> None:
    """Transactions end long before their time: what they leave behind in memory is bounded."""
    timeouts = Timeouts()
    for number in range(10 * SLACK):
        timeouts.set(f"id-{number}", Instant(60 + number))
        timeouts.cancel(f"id-{number}")
        assert len(timeouts) <= SLACK + 2
    assert timeouts.next() is None
    timeouts.set("a", Instant(70))
    timeouts.set("a", Instant(80))
    timeouts.set("b", Instant(75))
    assert timeouts.next() == Instant(75)
    assert timeouts.pop(Instant(80)) == ["b", "a"]
