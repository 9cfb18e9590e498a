"""Every state × request × version: the answer, the state that follows, the markers that are ordered.

What a quick broker shows only for a moment (Prepare*) cannot be recorded as a story: there these tables
follow the order of the checks in Kafka 4.3.1. Where we differ from it on purpose, the test says so.
"""

from __future__ import annotations

import pytest

from harness.transaction_machine import COORDINATOR_EPOCH, MachineCoordinator
from headrace.machines.transactions.effects import WriteMarkers
from headrace.machines.transactions.transaction import MAX_EPOCH, State, Transaction
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

ID, EPOCH, OTHER_ID, FRESH_ID = 500, 9, 501, 1001
PARTITIONS = frozenset({("t", 1), ("t", 0), ("s", 4)})

NONE, FENCED = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED
BUSY, UNMAPPED = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_PRODUCER_ID_MAPPING
INVALID = ErrorCode.INVALID_TXN_STATE
REST = (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
ENDING = (State.PREPARE_COMMIT, State.PREPARE_ABORT)


def coordinator_in(
    state: State, *, epoch: int = EPOCH, client_version: int = 2, next_id: int = -1, server_version: int = 2
) -> MachineCoordinator:
    """Loaded from one record: the id "a" in this state, owned by ID/epoch."""
    coordinator = MachineCoordinator()
    coordinator.settings.transaction_version = server_version
    now_ms = int(coordinator.clock.wall_ms)
    transaction = Transaction(
        transactional_id="a",
        producer_id=ID,
        producer_epoch=epoch,
        timeout_ms=60_000,
        state=state,
        last_update_ms=now_ms,
        partitions=PARTITIONS if state is State.ONGOING or state in ENDING else frozenset(),
        start_ms=-1 if state is State.EMPTY else now_ms,
        previous_producer_id=ID,
        next_producer_id=next_id,
        client_version=client_version,
    )
    coordinator.crash_into(transaction.record())
    coordinator.clock.advance(1)
    return coordinator


def end(
    coordinator: MachineCoordinator, version: int, *, commit: bool, producer_id: int = ID, epoch: int = EPOCH
) -> EndTxnResponse:
    request = EndTxnRequest(
        transactional_id="a", producer_id=producer_id, producer_epoch=epoch, committed=commit
    )
    return coordinator.end(request, version)


def init(
    coordinator: MachineCoordinator, held: tuple[int, int] = (-1, -1), version: int = 5
) -> InitProducerIdResponse:
    request = InitProducerIdRequest(
        transactional_id="a", transaction_timeout_ms=30_000, producer_id=held[0], producer_epoch=held[1]
    )
    return coordinator.init(request, version)


def add(
    coordinator: MachineCoordinator, producer_id: int = ID, epoch: int = EPOCH, *, verify: bool = False
) -> ErrorCode:
    reply = coordinator.carry_out(
        coordinator.machine.add_partitions(
            coordinator.clock.now(),
            "a",
            producer_id,
            epoch,
            [("new", 0)],
            verify_only=verify,
            transaction_version=2,
        )
    )
    return reply["new", 0]


def add_offsets(coordinator: MachineCoordinator, producer_id: int = ID, epoch: int = EPOCH) -> int:
    request = AddOffsetsToTxnRequest(
        transactional_id="a", producer_id=producer_id, producer_epoch=epoch, group_id="g"
    )
    return coordinator.add_offsets(request, 4).error_code


def order(coordinator: MachineCoordinator) -> WriteMarkers:
    (found,) = coordinator.orders
    return found


# (state, version, commit) → the answer, and the state that follows if it moved
ENDS = [
    (State.EMPTY, 4, True, INVALID, None),
    (State.EMPTY, 4, False, INVALID, None),
    (State.EMPTY, 5, True, INVALID, None),
    (State.EMPTY, 5, False, NONE, State.PREPARE_ABORT),
    (State.ONGOING, 4, True, NONE, State.PREPARE_COMMIT),
    (State.ONGOING, 4, False, NONE, State.PREPARE_ABORT),
    (State.ONGOING, 5, True, NONE, State.PREPARE_COMMIT),
    (State.ONGOING, 5, False, NONE, State.PREPARE_ABORT),
    *(
        (state, version, commit, BUSY, None)
        for state in ENDING
        for version in (4, 5)
        for commit in (True, False)
    ),
    (State.COMPLETE_COMMIT, 4, True, NONE, None),
    (State.COMPLETE_COMMIT, 4, False, INVALID, None),
    (State.COMPLETE_COMMIT, 5, True, INVALID, None),
    (State.COMPLETE_COMMIT, 5, False, NONE, State.PREPARE_ABORT),
    (State.COMPLETE_ABORT, 4, True, INVALID, None),
    (State.COMPLETE_ABORT, 4, False, NONE, None),
    (State.COMPLETE_ABORT, 5, True, INVALID, None),
    (State.COMPLETE_ABORT, 5, False, NONE, State.PREPARE_ABORT),
]


@pytest.mark.parametrize(("state", "version", "commit", "answer", "following"), ENDS)
def test_end_by_the_owner(
    state: State, version: int, commit: bool, answer: ErrorCode, following: State | None
) -> None:
    coordinator = coordinator_in(state, client_version=0 if version < 5 else 2)
    coordinator.orders.clear()
    before = coordinator.transaction("a")
    assert end(coordinator, version, commit=commit).error_code == answer
    after = coordinator.transaction("a")
    if following is None:
        assert after == before
        assert coordinator.orders == []
        return
    raised = EPOCH + 1 if version >= 5 else EPOCH
    assert (after.state, after.producer_epoch, after.partitions) == (following, raised, before.partitions)
    markers = order(coordinator)
    assert (markers.producer_id, markers.epoch, markers.coordinator_epoch) == (ID, raised, COORDINATOR_EPOCH)
    assert markers.is_commit == commit
    assert markers.partitions == sorted(before.partitions)
    coordinator.write_markers()
    done = coordinator.transaction("a")
    assert done.state is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)
    assert (done.partitions, done.producer_epoch) == (frozenset(), raised)


@pytest.mark.parametrize("state", [*REST, State.ONGOING])
@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize(
    ("producer_id", "epoch", "answer"),
    [(OTHER_ID, EPOCH, UNMAPPED), (ID, EPOCH - 2, FENCED), (ID, EPOCH + 1, FENCED), (ID, -1, FENCED)],
)
def test_end_by_somebody_else_changes_nothing(
    state: State, version: int, commit: bool, producer_id: int, epoch: int, answer: ErrorCode
) -> None:
    coordinator = coordinator_in(state)
    before = coordinator.machine.state()
    assert end(coordinator, version, commit=commit, producer_id=producer_id, epoch=epoch).error_code == answer
    assert (coordinator.machine.state(), coordinator.orders) == (before, [])


@pytest.mark.parametrize(
    ("state", "client_version", "commit", "answer"),
    [
        (State.EMPTY, 2, True, FENCED),
        (State.EMPTY, 2, False, FENCED),
        (State.ONGOING, 2, True, FENCED),
        (State.ONGOING, 2, False, FENCED),
        (State.COMPLETE_COMMIT, 2, True, NONE),
        (State.COMPLETE_COMMIT, 2, False, INVALID),
        (State.COMPLETE_ABORT, 2, True, INVALID),
        (State.COMPLETE_ABORT, 2, False, NONE),
        # ended in version 1, which raised no epoch: it is not a repetition but somebody fenced, and must not
        # learn the epoch of the owner (Kafka tells it)
        (State.COMPLETE_COMMIT, 0, True, FENCED),
        (State.COMPLETE_ABORT, 0, False, FENCED),
    ],
)
def test_end_repeated_with_the_epoch_before(
    state: State, client_version: int, commit: bool, answer: ErrorCode
) -> None:
    coordinator = coordinator_in(state, client_version=client_version)
    before = coordinator.machine.state()
    reply = end(coordinator, 5, commit=commit, epoch=EPOCH - 1)
    told = (ID, EPOCH) if answer is NONE else (-1, -1)
    assert (reply.error_code, reply.producer_id, reply.producer_epoch) == (answer, *told)
    assert (coordinator.machine.state(), coordinator.orders) == (before, [])


@pytest.mark.parametrize("state", ENDING)
@pytest.mark.parametrize(("producer_id", "epoch"), [(ID, EPOCH), (ID, EPOCH - 1), (FRESH_ID, 0)])
def test_all_wait_while_an_end_is_incomplete(state: State, producer_id: int, epoch: int) -> None:
    """Also a producer that was told its next id and comes before that has taken over."""
    coordinator = coordinator_in(state, epoch=EPOCH, next_id=FRESH_ID)
    before = coordinator.machine.state()
    for commit in (True, False):
        assert end(coordinator, 5, commit=commit, producer_id=producer_id, epoch=epoch).error_code == BUSY
    assert add(coordinator, producer_id, epoch) == BUSY
    assert add_offsets(coordinator, producer_id, epoch) == BUSY
    assert init(coordinator, (producer_id, epoch)).error_code == BUSY
    assert init(coordinator).error_code == BUSY
    assert coordinator.machine.state() == before
    coordinator.write_markers()
    assert add(coordinator, FRESH_ID, 0) == NONE


@pytest.mark.parametrize("state", REST)
def test_first_partition_begins_a_transaction(state: State) -> None:
    coordinator = coordinator_in(state)
    assert add(coordinator) == NONE
    after = coordinator.transaction("a")
    now_ms = int(coordinator.clock.wall_ms)
    assert (after.state, after.partitions, after.start_ms) == (State.ONGOING, frozenset({("new", 0)}), now_ms)
    assert coordinator.machine.deadline() == coordinator.clock.now().after_ms(60_000)


def test_further_partitions_leave_the_start_and_the_deadline() -> None:
    coordinator = coordinator_in(State.ONGOING)
    before, deadline = coordinator.transaction("a"), coordinator.machine.deadline()
    assert add(coordinator) == NONE
    assert add_offsets(coordinator) == NONE
    after = coordinator.transaction("a")
    assert after.partitions == PARTITIONS | {("new", 0), ("__consumer_offsets", 3)}
    assert after.start_ms == before.start_ms
    assert coordinator.machine.deadline() == deadline


def test_nothing_is_written_for_partitions_that_are_in() -> None:
    coordinator = coordinator_in(State.ONGOING)
    decision = coordinator.machine.add_partitions(
        coordinator.clock.now(),
        "a",
        ID,
        EPOCH,
        [("t", 0), ("s", 4)],
        verify_only=False,
        transaction_version=2,
    )
    assert (decision.reply, decision.records) == ({("t", 0): NONE, ("s", 4): NONE}, [])


@pytest.mark.parametrize("state", [*REST, State.ONGOING])
@pytest.mark.parametrize(
    ("producer_id", "epoch", "answer"),
    [(OTHER_ID, EPOCH, UNMAPPED), (ID, EPOCH - 1, FENCED), (ID, EPOCH + 1, FENCED)],
)
def test_adding_by_somebody_else_changes_nothing(
    state: State, producer_id: int, epoch: int, answer: ErrorCode
) -> None:
    coordinator = coordinator_in(state)
    before = coordinator.machine.state()
    assert add(coordinator, producer_id, epoch) == answer
    assert add(coordinator, producer_id, epoch, verify=True) == answer
    assert add_offsets(coordinator, producer_id, epoch) == answer
    assert coordinator.machine.state() == before


@pytest.mark.parametrize(
    ("state", "producer_id", "answer"),
    [
        *((state, ID, ErrorCode.TRANSACTION_ABORTABLE) for state in (*REST, State.ONGOING)),
        *((state, ID, BUSY) for state in ENDING),
        *((state, FRESH_ID, UNMAPPED) for state in ENDING),
    ],
)
def test_verification_adds_nothing(state: State, producer_id: int, answer: ErrorCode) -> None:
    coordinator = coordinator_in(state)
    before = coordinator.machine.state()
    assert add(coordinator, producer_id, verify=True) == answer
    assert coordinator.machine.state() == before


@pytest.mark.parametrize("server_version", [1, 2])
@pytest.mark.parametrize("held", [(-1, -1), (ID, EPOCH)])
def test_init_aborts_an_open_transaction_first(server_version: int, held: tuple[int, int]) -> None:
    coordinator = coordinator_in(State.ONGOING, server_version=server_version)
    assert init(coordinator, held).error_code == BUSY
    after = coordinator.transaction("a")
    assert (after.state, after.producer_epoch) == (State.PREPARE_ABORT, EPOCH + 1)
    markers = order(coordinator)
    assert (markers.is_commit, markers.epoch, markers.partitions) == (False, EPOCH + 1, sorted(PARTITIONS))
    coordinator.write_markers()
    reply = init(coordinator)
    assert (reply.error_code, reply.producer_id, reply.producer_epoch) == (NONE, ID, EPOCH + 2)


@pytest.mark.parametrize("held", [(ID, EPOCH - 1), (ID, EPOCH + 1), (OTHER_ID, EPOCH)])
def test_late_init_does_not_abort_the_owners_transaction(held: tuple[int, int]) -> None:
    """Kafka aborts if only the producer id is right, and fences the late one when it asks again."""
    coordinator = coordinator_in(State.ONGOING)
    before = coordinator.machine.state()
    assert init(coordinator, held).error_code == FENCED
    assert (coordinator.machine.state(), coordinator.orders) == (before, [])


@pytest.mark.parametrize(("version", "answer"), [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, FENCED)])
def test_init_tells_old_clients_the_old_error(version: int, answer: ErrorCode) -> None:
    assert init(coordinator_in(State.EMPTY), (ID, EPOCH - 1), version).error_code == answer


def test_init_asked_again_after_another_start_is_fenced() -> None:
    coordinator = coordinator_in(State.EMPTY)
    assert init(coordinator, (ID, EPOCH)).producer_epoch == EPOCH + 1
    assert init(coordinator).producer_epoch == EPOCH + 2
    assert init(coordinator, (ID, EPOCH)).error_code == FENCED
    assert init(coordinator, (ID, EPOCH + 1)).error_code == FENCED


def test_init_asked_again_after_a_crash_is_fenced() -> None:
    """The log does not say who asked: without that knowledge, caution wins (as in Kafka)."""
    coordinator = coordinator_in(State.EMPTY)
    assert init(coordinator, (ID, EPOCH)).producer_epoch == EPOCH + 1
    assert init(coordinator, (ID, EPOCH)).producer_epoch == EPOCH + 1
    coordinator.crash()
    assert init(coordinator, (ID, EPOCH)).error_code == FENCED


def test_two_phase_commit_is_refused() -> None:
    coordinator = coordinator_in(State.EMPTY)
    request = InitProducerIdRequest(transactional_id="a", transaction_timeout_ms=1000, enable2_pc=True)
    assert coordinator.init(request, 6).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    request = InitProducerIdRequest(transactional_id="a", transaction_timeout_ms=1000, keep_prepared_txn=True)
    assert coordinator.init(request, 6).error_code == ErrorCode.UNSUPPORTED_VERSION


# The last epochs: 32766 is the last that a producer may have, 32767 fences it and is told to nobody.


@pytest.mark.parametrize("server_version", [1, 2])
def test_fencing_the_last_epoch_leads_to_a_new_id(server_version: int) -> None:
    coordinator = coordinator_in(State.ONGOING, epoch=MAX_EPOCH - 1, server_version=server_version)
    assert init(coordinator).error_code == BUSY
    assert order(coordinator).epoch == MAX_EPOCH
    coordinator.write_markers()
    # neither the fenced producer nor anybody who guesses gets hold of the last epoch
    assert end(coordinator, 5, commit=False, epoch=MAX_EPOCH - 1).error_code == FENCED
    assert end(coordinator, 5, commit=False, epoch=MAX_EPOCH).error_code == FENCED
    assert end(coordinator, 4, commit=False, epoch=MAX_EPOCH).error_code == FENCED
    assert add(coordinator, epoch=MAX_EPOCH) == FENCED
    assert init(coordinator, (ID, MAX_EPOCH)).error_code == FENCED
    reply = init(coordinator)
    assert (reply.producer_id, reply.producer_epoch) == (FRESH_ID, 0)


def test_producer_fenced_with_the_last_epoch_continues_with_a_new_id() -> None:
    coordinator = coordinator_in(State.ONGOING, epoch=MAX_EPOCH - 1)
    coordinator.clock.advance(60)
    coordinator.wake()
    coordinator.write_markers()
    for _ in range(3):  # however often it asks
        reply = init(coordinator, (ID, MAX_EPOCH - 1))
        assert (reply.producer_id, reply.producer_epoch) == (FRESH_ID, 0)


def test_new_id_takes_over_although_the_coordinator_crashed() -> None:
    coordinator = coordinator_in(State.ONGOING, epoch=MAX_EPOCH - 1)
    reply = end(coordinator, 5, commit=True, epoch=MAX_EPOCH - 1)
    assert (reply.producer_id, reply.producer_epoch) == (FRESH_ID, 0)
    coordinator.crash()
    assert order(coordinator).epoch == MAX_EPOCH
    coordinator.write_markers()
    after = coordinator.transaction("a")
    assert (after.producer_id, after.producer_epoch, after.previous_producer_id) == (FRESH_ID, 0, ID)
    repeated = end(coordinator, 5, commit=True, epoch=MAX_EPOCH - 1)
    assert (repeated.error_code, repeated.producer_id, repeated.producer_epoch) == (NONE, FRESH_ID, 0)
