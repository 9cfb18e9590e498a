"""Random histories of producers: requests are lost, delayed and repeated, time passes, machines crash.

Judges, after every step:
- one_outcome: a transaction that began ends once, as it was decided, and nothing happens to it in between;
- owner_alone: only the owner of the newest epoch changes anything;
- epochs_rise: per producer id, and an id belongs to one transactional id; the last epoch is told to nobody;
- no_strangers (version 2): a request of one transaction neither ends nor opens another;
- in_time: nothing is open beyond its timeout;
- rebuilt: the log, also when compacted, gives back the state.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from harness.transaction_machine import OFFSETS_PARTITION, MachineCoordinator
from headrace.machines.coordination import Decision
from headrace.machines.transactions.settings import TransactionSettings
from headrace.machines.transactions.transaction import MAX_EPOCH, State, Transaction, recorded
from headrace.machines.transactions.transactions import Transactions
from headrace.protocol.coordinator_records import Record
from headrace.protocol.coordinator_records.transactions import TransactionLogValue
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest

IDS = ("a", "b")
TIMEOUT_MS = 10_000
EXPIRATION_MS = 60_000

MOVES = {
    None: {State.EMPTY},
    State.EMPTY: {State.EMPTY, State.ONGOING, State.PREPARE_ABORT},
    State.ONGOING: {State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT},
    State.PREPARE_COMMIT: {State.COMPLETE_COMMIT},
    State.PREPARE_ABORT: {State.COMPLETE_ABORT},
    State.COMPLETE_COMMIT: {State.EMPTY, State.ONGOING, State.PREPARE_ABORT},
    State.COMPLETE_ABORT: {State.EMPTY, State.ONGOING, State.PREPARE_ABORT},
}
FORGOTTEN = {None, State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT}


@dataclass(eq=False)
class Producer:
    """A client: what it believes to hold, and which of its transactions it is in."""

    transactional_id: str
    version: int  # transaction version that it speaks: 1 or 2
    producer_id: int = -1
    epoch: int = -1
    serial: int = 0

    @property
    def held(self) -> tuple[int, int]:
        return self.producer_id, self.epoch


@dataclass(eq=False)
class Message:
    """What was sent once, and may arrive at any time and any number of times."""

    producer: Producer
    kind: str  # "init", "add", "offsets", "commit" or "abort"
    held: tuple[int, int]
    serial: int
    partitions: tuple[tuple[str, int], ...] = ()


class Histories(RuleBasedStateMachine):
    versions = st.just(2)
    server_version = 2

    def __init__(self) -> None:
        super().__init__()
        self.coordinator = MachineCoordinator(
            TransactionSettings(
                transaction_version=self.server_version,
                transactional_id_expiration_ms=EXPIRATION_MS,
                transaction_remove_expired_transaction_cleanup_interval_ms=5_000,
            )
        )
        self.producers: dict[str, Producer] = {}
        self.sent: list[Message] = []
        self.epochs: dict[int, int] = {}  # the highest of each producer id
        self.homes: dict[int, str] = {}  # whose each producer id is
        self.opened_by: dict[str, tuple[Producer, int]] = {}  # the request that began the open transaction
        self.opened: set[tuple[Producer, int]] = set()

    # judged on the way to the log

    def carry_out(self, decision: Decision) -> None:
        for record in decision.records:
            self.judge(record)
        self.coordinator.carry_out(decision)

    def judge(self, record: Record) -> None:
        transactional_id = record.key.transactional_id
        before = self.coordinator.machine.state().get(transactional_id)
        state = before.state if before else None
        if record.value is None:
            assert state in FORGOTTEN, f"one_outcome: forgotten in {state}"
            return
        assert isinstance(record.value, TransactionLogValue)
        after = recorded(transactional_id, record.value)
        assert after.state in MOVES[state], f"one_outcome: {state} → {after.state}"
        if before is not None and before.is_open:
            assert after.partitions >= before.partitions, "one_outcome: a partition was forgotten"
            assert after.start_ms == before.start_ms
        assert self.homes.setdefault(after.producer_id, transactional_id) == transactional_id, "epochs_rise"
        assert after.producer_epoch >= self.epochs.get(after.producer_id, 0), "epochs_rise"
        self.epochs[after.producer_id] = after.producer_epoch

    # requests

    def deliver(self, message: Message) -> tuple[ErrorCode, tuple[int, int]]:
        """The error, and the producer id and epoch that the answer tells."""
        before = self.coordinator.machine.state().get(message.producer.transactional_id)
        decision, error, told = self.decide(message)
        assert told[1] != MAX_EPOCH, "epochs_rise: the last epoch was told"
        if decision.records:
            self.judge_right(message, before)
        if error is not ErrorCode.NONE and message.kind != "init":
            assert decision.records == []
        self.judge_transaction(message, before, decision)
        self.carry_out(decision)
        return error, told

    def decide(self, message: Message) -> tuple[Decision, ErrorCode, tuple[int, int]]:
        machine, now = self.coordinator.machine, self.coordinator.clock.now()
        transactional_id, version = message.producer.transactional_id, message.producer.version
        (producer_id, epoch), nothing = message.held, (-1, -1)
        if message.kind == "init":
            init = InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout_ms=TIMEOUT_MS,
                producer_id=producer_id,
                producer_epoch=epoch,
            )
            decision = machine.init_producer_id(now, init, 5, self.coordinator.fresh_id)
            told = decision.reply.producer_id, decision.reply.producer_epoch
            return decision, ErrorCode(decision.reply.error_code), told
        if message.kind == "add":
            wanted = list(message.partitions)
            decision = machine.add_partitions(
                now,
                transactional_id,
                producer_id,
                epoch,
                wanted,
                verify_only=False,
                transaction_version=version,
            )
            return decision, decision.reply[wanted[0]], nothing
        if message.kind == "offsets":
            offsets = AddOffsetsToTxnRequest(
                transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, group_id="g"
            )
            decision = machine.add_offsets(now, offsets, OFFSETS_PARTITION, version=4)
            return decision, ErrorCode(decision.reply.error_code), nothing
        end = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=message.kind == "commit",
        )
        decision = machine.end(now, end, 5 if version == 2 else 4, self.coordinator.fresh_id)
        told = (decision.reply.producer_id, decision.reply.producer_epoch) if version == 2 else message.held
        return decision, ErrorCode(decision.reply.error_code), told

    def judge_right(self, message: Message, before: Transaction | None) -> None:
        """owner_alone: whoever changes something holds the newest epoch, or starts anew."""
        if message.kind == "init" and (message.held == (-1, -1) or before is None):
            return
        assert before is not None, "owner_alone: nobody owns an unknown id"
        owner = before.producer_id, before.producer_epoch
        if message.kind == "init" and not before.is_open:
            # its own answer may have been lost: then it shows the epoch from which it was raised
            assert message.held == owner or message.held[1] in (before.producer_epoch - 1, MAX_EPOCH - 1), (
                "owner_alone"
            )
        else:
            assert message.held == owner, f"owner_alone: {message} changed what {owner} owns"

    def judge_transaction(self, message: Message, before: Transaction | None, decision: Decision) -> None:
        """no_strangers: a request of version 2 counts in the transaction for which it was sent."""
        if not decision.records or message.kind == "init":
            return
        transactional_id, origin = message.producer.transactional_id, (message.producer, message.serial)
        is_open = before is not None and before.is_open
        if message.kind in ("add", "offsets"):
            if not is_open:
                assert message.producer.version == 1 or origin not in self.opened, (
                    "no_strangers: opened twice"
                )
                self.opened.add(origin)
                self.opened_by[transactional_id] = origin
        elif is_open and message.producer.version == 2:
            assert self.opened_by[transactional_id] == origin, "no_strangers: ended somebody else's"

    def send(self, message: Message, fate: str) -> tuple[ErrorCode, tuple[int, int]] | None:
        self.sent.append(message)
        if fate == "delayed":
            return None
        answer = self.deliver(message)
        return None if fate == "answer lost" else answer

    @initialize(epoch=st.sampled_from((None, MAX_EPOCH - 3, MAX_EPOCH - 2)))
    def begin_with_an_old_id(self, epoch: int | None) -> None:
        """ "b" has lived for long: few epochs are left."""
        if epoch is not None:
            now_ms = self.coordinator.clock.now().wall_ms
            old = Transaction("b", 77, epoch, TIMEOUT_MS, State.EMPTY, now_ms, previous_producer_id=77)
            self.carry_out(Decision(records=[old.record()]))

    fates = st.sampled_from(("answered", "answered", "answered", "answer lost", "delayed"))

    @rule(data=st.data(), transactional_id=st.sampled_from(IDS), fate=fates)
    def start_producer(self, data: st.DataObject, transactional_id: str, fate: str) -> None:
        """A new process; the one before does not know, and goes on in what it has sent."""
        producer = Producer(transactional_id, data.draw(self.versions))
        self.producers[transactional_id] = producer
        self.initialize(producer, (-1, -1), fate)

    @precondition(lambda self: self.producers)
    @rule(data=st.data(), fate=fates)
    def continue_after_error(self, data: st.DataObject, fate: str) -> None:
        producer = data.draw(st.sampled_from(list(self.producers.values())))
        self.initialize(producer, producer.held, fate)

    def initialize(self, producer: Producer, held: tuple[int, int], fate: str) -> None:
        answer = self.send(Message(producer, "init", held, producer.serial), fate)
        if answer is not None and answer[0] is ErrorCode.NONE:
            producer.producer_id, producer.epoch = answer[1]
            producer.serial += 1

    @precondition(lambda self: self.producers)
    @rule(
        data=st.data(),
        kind=st.sampled_from(("add", "add", "offsets")),
        topic=st.sampled_from("st"),
        fate=fates,
    )
    def add(self, data: st.DataObject, kind: str, topic: str, fate: str) -> None:
        producer = data.draw(st.sampled_from(list(self.producers.values())))
        partitions = ((topic, 0), (topic, 1)) if kind == "add" else ()
        self.send(Message(producer, kind, producer.held, producer.serial, partitions), fate)

    @precondition(lambda self: self.producers)
    @rule(data=st.data(), kind=st.sampled_from(("commit", "abort")), fate=fates)
    def end(self, data: st.DataObject, kind: str, fate: str) -> None:
        self.finish(data.draw(st.sampled_from(list(self.producers.values()))), kind, fate)

    def finish(self, producer: Producer, kind: str, fate: str) -> None:
        answer = self.send(Message(producer, kind, producer.held, producer.serial), fate)
        if answer is not None and answer[0] is ErrorCode.NONE:
            producer.producer_id, producer.epoch = answer[1]
            producer.serial += 1

    @precondition(lambda self: self.producers)
    @rule(data=st.data(), kind=st.sampled_from(("commit", "abort")))
    def transact(self, data: st.DataObject, kind: str) -> None:
        """A whole transaction in which nothing goes wrong on the way."""
        producer = data.draw(st.sampled_from(list(self.producers.values())))
        self.send(Message(producer, "add", producer.held, producer.serial, (("s", 0),)), "answered")
        self.finish(producer, kind, "answered")
        self.write_markers()

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def arrive_late(self, data: st.DataObject) -> None:
        """Something sent before arrives now, perhaps again; nobody waits for the answer any more."""
        is_recent = data.draw(st.booleans())
        self.deliver(data.draw(st.sampled_from(self.sent[-4:] if is_recent else self.sent)))

    # the rest of the world

    @rule()
    def write_markers(self) -> None:
        orders, self.coordinator.orders = self.coordinator.orders, []
        for order in orders:
            for _ in range(2):  # done twice is done once
                self.carry_out(self.coordinator.machine.markers_written(self.coordinator.clock.now(), order))

    @rule(seconds=st.sampled_from((0.5, 3.0, 9.0, 70.0)))
    def pass_time(self, seconds: float) -> None:
        self.coordinator.clock.advance(seconds)
        self.wake()

    def wake(self) -> None:
        machine, clock = self.coordinator.machine, self.coordinator.clock
        while (deadline := machine.deadline()) is not None and deadline <= clock.mono:
            for decision in machine.wake(clock.now()):
                self.carry_out(decision)

    @rule(seconds=st.sampled_from((0.0, 6.0)))
    def crash(self, seconds: float) -> None:
        stale = self.coordinator.orders
        self.coordinator.clock.advance(seconds)
        self.coordinator.crash()
        for order in stale:
            decision = self.coordinator.machine.markers_written(self.coordinator.clock.now(), order)
            assert decision.records == [], "one_outcome: the order of a machine that is gone"
        self.wake()

    @invariant()
    def in_time(self) -> None:
        now_ms = self.coordinator.clock.now().wall_ms
        for transaction in self.coordinator.machine.state().values():
            if transaction.is_open:
                assert now_ms - transaction.start_ms < transaction.timeout_ms, f"in_time: {transaction}"

    @invariant()
    def rebuilt_from_a_compacted_log(self) -> None:
        newest = {record.key.transactional_id: record for record in self.coordinator.records}
        machine = Transactions(TransactionSettings(), 0)
        for record in newest.values():
            machine.replay(record)
        assert machine.state() == self.coordinator.machine.state(), "rebuilt"

    def teardown(self) -> None:
        """When the world is quiet, every transaction comes to its end."""
        self.coordinator.clock.advance(TIMEOUT_MS / 1000)
        self.wake()
        self.write_markers()
        left = [each for each in self.coordinator.machine.state().values() if each.is_open or each.is_ending]
        assert left == [], "in_time: a hanging transaction"


class MixedHistories(Histories):
    """Producers of both versions, one after the other, in a cluster that is at version 1."""

    versions = st.sampled_from((1, 2))
    server_version = 1


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestMixedHistories = MixedHistories.TestCase
TestMixedHistories.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
