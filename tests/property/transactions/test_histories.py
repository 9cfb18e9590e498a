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
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.transaction_machine import OFFSETS_PARTITION, MachineCoordinator
from headrace.machines.coordination import Decision
from headrace.machines.transactions.ending import End
from headrace.machines.transactions.initialization import Initialization, ProducerEpoch
from headrace.machines.transactions.settings import TransactionSettings
from headrace.machines.transactions.transaction import MAX_EPOCH, State, Transaction, recorded
from headrace.machines.transactions.transactions import Transactions
from headrace.protocol.coordinator_records import Record
from headrace.protocol.coordinator_records.transactions import TransactionLogKey, TransactionLogValue
from headrace.protocol.errors import ErrorCode

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
FATAL = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
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


def outcome_of(decision: Decision, nothing: tuple[int, int]) -> tuple[ErrorCode, tuple[int, int]]:
    """The error, and the producer id and epoch that were told."""
    reply: ErrorCode | ProducerEpoch = decision.reply
    if isinstance(reply, ErrorCode):
        return reply, nothing
    producer_id, epoch = reply
    return ErrorCode.NONE, (producer_id, epoch)


class History:
    def __init__(self, seed: int, *, versions: tuple[int, ...], server_version: int) -> None:
        self.rng = Random(seed)
        self.versions = versions  # that producers speak
        self.coordinator = MachineCoordinator(
            TransactionSettings(
                transaction_version=server_version,
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
        assert isinstance(record.key, TransactionLogKey)
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
            init = Initialization(transactional_id, TIMEOUT_MS, producer_id, epoch)
            decision = machine.init_producer_id(now, init, self.coordinator.fresh_id)
            return decision, *outcome_of(decision, nothing)
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
            decision = machine.add_offsets(now, transactional_id, producer_id, epoch, OFFSETS_PARTITION)
            return decision, decision.reply, nothing
        end = End(transactional_id, producer_id, epoch, message.kind == "commit", version)
        decision = machine.end(now, end, self.coordinator.fresh_id)
        error, told = outcome_of(decision, nothing)
        return decision, error, told if version == 2 else message.held

    def judge_right(self, message: Message, before: Transaction | None) -> None:
        """owner_alone: whoever changes something holds the newest epoch, or starts again."""
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

    def send(self, producer: Producer, kind: str, held: tuple[int, int] | None = None) -> None:
        """The producer learns from the answer, if it comes; what is delayed may arrive later, or never."""
        partitions = ((self.rng.choice("st"), 0), ("t", 1)) if kind == "add" else ()
        message = Message(
            producer, kind, producer.held if held is None else held, producer.serial, partitions
        )
        self.sent.append(message)
        fate = self.rng.choices(("answered", "answer lost", "delayed"), (8, 1, 1))[0]
        if fate == "delayed":
            return
        error, told = self.deliver(message)
        if fate == "answered" and error is ErrorCode.NONE and kind in ("init", "commit", "abort"):
            producer.producer_id, producer.epoch = told
            producer.serial += 1
        elif fate == "answered" and error in FATAL:
            self.start(producer.transactional_id)

    # what happens

    def start(self, transactional_id: str | None = None) -> None:
        """A new process; the one before does not know, and goes on in what it has sent."""
        transactional_id = transactional_id or self.rng.choice(IDS)
        producer = Producer(transactional_id, self.rng.choice(self.versions))
        self.producers[transactional_id] = producer
        self.send(producer, "init", (-1, -1))

    def act(self) -> None:
        kinds = ("init", "add", "offsets", "commit", "abort")
        producer = self.rng.choice(list(self.producers.values()))
        self.send(producer, self.rng.choices(kinds, (1, 4, 1, 2, 2))[0])

    def arrive_late(self) -> None:
        """Something sent before arrives now, perhaps again; nobody waits for the answer any more."""
        self.deliver(self.rng.choice(self.sent))

    def write_markers(self) -> None:
        orders, self.coordinator.orders = self.coordinator.orders, []
        for order in orders:
            for _ in range(2):  # done twice is done once
                self.carry_out(self.coordinator.machine.markers_written(self.coordinator.clock.now(), order))

    def pass_time(self) -> None:
        self.coordinator.clock.advance(self.rng.choices((0.5, 3.0, 9.0, 70.0), (8, 4, 2, 1))[0])
        self.wake()

    def wake(self) -> None:
        machine, clock = self.coordinator.machine, self.coordinator.clock
        while (deadline := machine.deadline()) is not None and deadline <= clock.mono:
            for decision in machine.wake(clock.now()):
                self.carry_out(decision)

    def crash(self) -> None:
        stale = self.coordinator.orders
        self.coordinator.clock.advance(self.rng.choice((0.0, 6.0)))
        self.coordinator.crash()
        for order in stale:
            assert not self.coordinator.machine.is_writing(order), "one_outcome: markers of a machine gone"
            decision = self.coordinator.machine.markers_written(self.coordinator.clock.now(), order)
            assert decision.records == [], "one_outcome: the order of a machine that is gone"
        self.wake()

    def run(self, steps: int) -> None:
        happenings = (self.act, self.arrive_late, self.write_markers, self.pass_time, self.start, self.crash)
        self.start()
        for happening in self.rng.choices(happenings, (12, 4, 6, 2, 1, 1), k=steps):
            happening()
            self.judge_time()
            self.judge_rebuilt()
            self.coordinator.machine.check()
        # when the world is quiet, every transaction comes to its end
        self.coordinator.clock.advance(TIMEOUT_MS / 1000)
        self.wake()
        self.write_markers()
        left = [each for each in self.coordinator.machine.state().values() if each.is_open or each.is_ending]
        assert left == [], "in_time: a hanging transaction"

    def judge_time(self) -> None:
        now_ms = self.coordinator.clock.now().wall_ms
        for transaction in self.coordinator.machine.state().values():
            if transaction.is_open:
                assert now_ms - transaction.start_ms < transaction.timeout_ms, f"in_time: {transaction}"

    def judge_rebuilt(self) -> None:
        newest = {repr(record.key): record for record in self.coordinator.records}
        machine = Transactions(TransactionSettings(), 0)
        for record in newest.values():
            machine.replay(record)
        assert machine.state() == self.coordinator.machine.state(), "rebuilt"


SEEDS = st.integers(0, 2**32 - 1)
STEPS = 120


@settings(max_examples=150, deadline=None)
@given(seed=SEEDS)
def test_histories_of_version_2(seed: int) -> None:
    History(seed, versions=(2,), server_version=2).run(STEPS)


@settings(max_examples=100, deadline=None)
@given(seed=SEEDS)
def test_histories_of_both_versions(seed: int) -> None:
    """Producers of both versions, one after the other, in a cluster that is at version 1."""
    History(seed, versions=(1, 2), server_version=1).run(STEPS)


@settings(max_examples=50, deadline=None)
@given(seed=SEEDS, epochs_left=st.integers(1, 4))
def test_histories_where_epochs_run_out(seed: int, epochs_left: int) -> None:
    history = History(seed, versions=(2,), server_version=2)
    for transactional_id, producer_id in zip(IDS, (77, 78), strict=True):
        old = Transaction(
            transactional_id,
            producer_id,
            MAX_EPOCH - 1 - epochs_left,
            TIMEOUT_MS,
            State.EMPTY,
            history.coordinator.clock.now().wall_ms,
            previous_producer_id=producer_id,
        )
        history.carry_out(Decision(records=[old.record()]))
    history.run(STEPS)
