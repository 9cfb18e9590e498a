"""Three replicas of one partition on plain lists, with a small controller, as one seeded history.

Requests, answers and metadata travel apart from each other: they are delayed, requests arrive twice, metadata
reach each broker at another moment. Processes are killed, hosts lose power (and the end of their logs),
brokers are fenced. Leaders and followers are the machines of `headrace.machines.replication`. After each
action `Replicas` checks what replication promises, and raises `Broken` with the promise's name.

The controller is the smallest one that is right: leaders come from the in-sync replicas or from those that
were in sync when too few were left (KIP-966), a broker that lost power is neither.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from headrace.base.ids import BrokerId, Epoch, Offset
from headrace.base.time import Instant
from headrace.machines.replication import follower as following
from headrace.machines.replication import leader as leading
from headrace.machines.replication import lineage
from headrace.machines.replication.follower import (
    AdvanceLogStart,
    AppendRecords,
    FetchAnswered,
    LogTruncated,
    PartitionFollower,
    RecordsAppended,
    StartOverAt,
    TruncateTo,
)
from headrace.machines.replication.leader import (
    IsrCommitted,
    IsrOutdated,
    IsrRejected,
    PartitionChanged,
    PartitionLeader,
    ProposeIsr,
    RaiseHighWatermark,
    ReplicaFetched,
)
from headrace.protocol.errors import ErrorCode
from headrace.storage.leader_epochs import LeaderEpochs

BROKERS = (BrokerId(1), BrokerId(2), BrokerId(3))
MIN_INSYNC = 2
LAG_SECONDS = 5.0
FETCHED_MAX = 4  # records per answer


class Broken(AssertionError):
    """A promise of replication does not hold."""

    def __init__(self, promise: str, what: str) -> None:
        super().__init__(f"{promise}: {what}")
        self.promise = promise


@dataclass(slots=True)
class Mistakes:
    """Wrong behaviour of what surrounds the machines; those of the machines are patched in by tests."""

    truncates_to_high_watermark: bool = False
    follower_assigns_epoch: bool = False
    acks_by_offset_alone: bool = False
    appends_later_epochs: bool = False
    stays_in_sync_without_power: bool = False
    leads_from_log_end: bool = False


Record = tuple[int, int]  # leader epoch, value


class Log:
    """Records by offset, and the lineage."""

    def __init__(self) -> None:
        self.start = 0
        self.items: list[Record] = []
        self.epochs = LeaderEpochs()

    @property
    def end(self) -> int:
        return self.start + len(self.items)

    @property
    def last_epoch(self) -> int:
        return self.epochs.latest

    def append(self, record: Record) -> None:
        if record[0] > self.epochs.latest:
            self.epochs.assign(record[0], self.end)
        self.items.append(record)

    def read(self, offset: int, limit: int) -> list[Record]:
        first = offset - self.start
        return self.items[first : first + limit] if first >= 0 else []

    def truncate(self, offset: int) -> None:
        del self.items[max(offset - self.start, 0) :]
        self.epochs.truncate_end(self.end)

    def start_over(self, offset: int) -> None:
        self.items.clear()
        self.start = offset
        self.epochs.truncate_end(-1)

    def advance_start(self, offset: int) -> None:
        if offset > self.start:
            del self.items[: offset - self.start]
            self.start = offset
            self.epochs.truncate_start(offset)

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        return self.epochs.end_offset(epoch, self.end)

    def epoch_at(self, offset: int) -> int:
        return self.epochs.epoch_of(offset)


@dataclass(slots=True)
class Metadata:
    """What the controller has committed."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: frozenset[BrokerId]
    live: dict[BrokerId, int]  # broker epochs of those that are not fenced


class Controller:
    def __init__(self, mistakes: Mistakes) -> None:
        self._mistakes = mistakes
        self.isr: frozenset[BrokerId] = frozenset(BROKERS)
        self.elr: frozenset[BrokerId] = frozenset()
        self.leader: int = BROKERS[0]
        self.leader_epoch = 0
        self.partition_epoch = 0
        self.broker_epochs: dict[BrokerId, int] = {id: number for number, id in enumerate(BROKERS)}
        self.fenced: set[BrokerId] = set()
        self.powerless: set[BrokerId] = set()  # lost power, and have not said so yet
        self.history: list[Metadata] = []
        self.publish()

    @property
    def live(self) -> dict[BrokerId, int]:
        return {id: epoch for id, epoch in self.broker_epochs.items() if id not in self.fenced}

    def publish(self) -> None:
        self.history.append(
            Metadata(self.leader, self.leader_epoch, self.partition_epoch, self.isr, self.live)
        )

    def fence(self, broker: BrokerId) -> None:
        self.fenced.add(broker)
        self._change(self.isr - {broker})

    def register(self, broker: BrokerId, *, is_trusted: bool) -> int:
        self.broker_epochs[broker] = max(self.broker_epochs.values()) + 1
        self.fenced.add(broker)
        self.powerless.discard(broker)
        self._change(self.isr - {broker})
        if not is_trusted and not self._mistakes.stays_in_sync_without_power:
            self.elr -= {broker}
        self._elect()
        self.publish()
        return self.broker_epochs[broker]

    def unfence(self, broker: BrokerId) -> None:
        self.fenced.discard(broker)
        self._elect()
        self.publish()

    def alter(self, leader: BrokerId, leader_epoch: int, proposal: ProposeIsr) -> Any:
        asked_in = proposal.partition_epoch
        if leader != self.leader or leader_epoch != self.leader_epoch or asked_in != self.partition_epoch:
            return IsrOutdated(asked_in)
        live = self.live
        if any(id not in live or epoch not in (-1, live[id]) for id, epoch in proposal.isr):
            return IsrRejected(asked_in)
        self._change(frozenset(id for id, _ in proposal.isr), is_asked=True)
        return IsrCommitted(asked_in, self.partition_epoch, self.isr)

    def _change(self, isr: frozenset[BrokerId], *, is_asked: bool = False) -> None:
        if isr != self.isr or is_asked:
            gone = self.isr - isr
            self.isr = isr
            self.elr = frozenset() if len(isr) >= MIN_INSYNC else (self.elr | gone) - isr
            self.partition_epoch += 1
        self._elect()
        self.publish()

    def _elect(self) -> None:
        live = self.live
        if self.leader in live and self.leader in self.isr:
            return
        candidates = sorted(self.isr & live.keys()) or sorted(self.elr & live.keys())
        leader = candidates[0] if candidates else -1
        if leader == self.leader:
            return
        if leader != -1 and leader not in self.isr:
            self.isr = frozenset((BrokerId(leader),))
            self.elr -= self.isr
        self.leader = leader
        self.leader_epoch += 1
        self.partition_epoch += 1

    def may_lose_power(self, broker: BrokerId) -> bool:
        """KIP-966 outlives min.insync.replicas - 1 of them: one that has everything must be left."""
        return not self.powerless and bool((self.isr | self.elr) - {broker})


@dataclass(slots=True)
class Ack:
    epoch: int
    end: int
    value: int


class Broker:
    def __init__(self, id: BrokerId, epoch: int) -> None:
        self.id = id
        self.broker_epoch = epoch
        self.log = Log()
        self.high_watermark = 0
        self.checkpointed = 0  # the high watermark that is on disk
        self.flushed = 0
        self.is_up = True
        self.seen = -1  # how much of the metadata
        self.live: dict[BrokerId, int] = {}
        self.leader: PartitionLeader | None = None
        self.follower: PartitionFollower | None = None
        self.leader_epoch = -1
        self.proposal: ProposeIsr | None = None  # sent again until it is answered
        self.attempts = 0
        self.acks: list[Ack] = []


@dataclass(slots=True)
class Fetch:
    broker: BrokerId
    follower: PartitionFollower
    broker_epoch: int
    leader: int
    leader_epoch: int
    offset: int
    last_epoch: int


@dataclass(slots=True)
class FetchAnswer:
    fetch: Fetch
    answer: FetchAnswered
    has_records: bool


@dataclass(slots=True)
class Alter:
    leader: BrokerId
    machine: PartitionLeader
    proposal: ProposeIsr


@dataclass(slots=True)
class AlterAnswer:
    leader: BrokerId
    machine: PartitionLeader
    proposal: ProposeIsr
    answer: Any


@dataclass(slots=True)
class Counts:
    acked: int = 0
    elections: int = 0
    truncations: int = 0
    isr_changes: int = 0
    power_losses: int = 0
    committed: int = 0


@dataclass(slots=True)
class Replicas:
    seed: int
    mistakes: Mistakes = field(default_factory=Mistakes)
    rng: Random = field(init=False)
    controller: Controller = field(init=False)
    brokers: dict[BrokerId, Broker] = field(init=False)
    network: list[Any] = field(default_factory=list)
    late: list[Any] = field(default_factory=list)
    committed: list[Record] = field(default_factory=list)
    acked: dict[int, int] = field(default_factory=dict)  # value → offset
    counts: Counts = field(default_factory=Counts)
    now: float = 0.0
    values: int = 0
    lateness: float = 0.0  # the share of messages that arrive much later than others

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)
        self.lateness = self.rng.choice((0.02, 0.05, 0.2))
        self.controller = Controller(self.mistakes)
        self.brokers = {id: Broker(id, epoch) for id, epoch in self.controller.broker_epochs.items()}
        for broker in self.brokers.values():
            self.learn(broker)

    def run(self, steps: int) -> None:
        actions: list[tuple[Callable[[], None], int]] = [
            (self.append, 20),
            (self.send_fetch, 40),
            (self.deliver, 60),
            (self.deliver_late, 2),
            (self.spread_metadata, 25),
            (self.let_time_pass, 6),
            (self.flush, 4),
            (self.crash, 1),
            (self.restart, 3),
            (self.fence, 1),
            (self.unfence, 4),
            (self.delete_records, 1),
        ]
        # each seed has its own mixture: some states are reached only where something else is rare
        weights = [weight * self.rng.choice((0.5, 1, 1, 3)) for _, weight in actions]
        chosen = self.rng.choices([act for act, _ in actions], weights, k=steps)
        for act in chosen:
            self.now += self.rng.random() * 0.05
            act()
            self.check()

    def heal(self) -> None:
        """Everything is up, everything arrives: then all replicas are equal and in sync."""
        self.network.clear()
        for broker in self.brokers.values():
            if not broker.is_up:
                self.start(broker)
            self.controller.unfence(broker.id)
        for _ in range(400):
            self.now += 0.3
            for broker in self.brokers.values():
                while self.learn(broker):
                    pass
                self.wake(broker)
                if broker.follower is not None:
                    broker.follower.step(Instant(self.now), following.Woke())
                    self.fetch(broker)
            messages, self.network = self.network, []
            for message in messages:
                self.receive(message)
            self.check()
        logs = {tuple(broker.log.items) for broker in self.brokers.values() if not broker.log.start}
        if len(logs) > 1 or self.controller.isr != set(BROKERS):
            raise Broken("heals", f"in sync are {sorted(self.controller.isr)}")

    # --- actions ---------------------------------------------------------------------------------------

    def up(self) -> list[Broker]:
        return [broker for broker in self.brokers.values() if broker.is_up]

    def append(self) -> None:
        leaders = [broker for broker in self.up() if broker.leader is not None]
        if not leaders:
            return
        broker = self.rng.choice(leaders)
        assert broker.leader is not None
        if len(broker.leader.isr) < MIN_INSYNC:
            return
        self.values += 1
        broker.log.append((broker.leader.epoch, self.values))
        broker.acks.append(Ack(broker.leader.epoch, broker.log.end, self.values))
        if broker.leader.local_end_moved(broker.log.end):
            self.raised(broker, broker.leader.high_watermark)

    def send_fetch(self) -> None:
        candidates = [broker for broker in self.up() if broker.follower is not None]
        if candidates:
            broker = self.rng.choice(candidates)
            assert broker.follower is not None
            broker.follower.step(Instant(self.now), following.Woke())
            self.fetch(broker)

    def fetch(self, broker: Broker) -> None:
        follower = broker.follower
        assert follower is not None
        if follower.is_fetching:
            self.network.append(
                Fetch(
                    broker.id,
                    follower,
                    broker.broker_epoch,
                    follower.leader_id,
                    follower.epoch,
                    follower.fetch_offset,
                    follower.last_epoch,
                )
            )

    def deliver(self) -> None:
        if not self.network:
            return
        at = self.rng.randrange(len(self.network)) if self.rng.random() < 0.3 else 0
        message = self.network[at]
        luck = self.rng.random()
        if luck < 0.05:
            del self.network[at]  # lost
            return
        if luck > 0.1 or not isinstance(message, Fetch):  # else it arrives once more, later
            del self.network[at]
        if 0.1 < luck < 0.1 + self.lateness:
            self.late.append(message)
            return
        self.receive(message)

    def deliver_late(self) -> None:
        if self.late:
            self.receive(self.late.pop(self.rng.randrange(len(self.late))))

    def receive(self, message: Any) -> None:
        match message:
            case Fetch():
                self.serve(message)
            case FetchAnswer():
                self.follow(message)
            case Alter():
                answer = self.controller.alter(message.leader, message.machine.epoch, message.proposal)
                self.counts.isr_changes += isinstance(answer, IsrCommitted)
                self.network.append(AlterAnswer(message.leader, message.machine, message.proposal, answer))
            case AlterAnswer():
                broker = self.brokers[message.leader]
                if broker.is_up and broker.leader is message.machine and message.proposal is broker.proposal:
                    if isinstance(message.answer, IsrRejected):
                        message.answer.is_final = broker.attempts == 1
                    self.lead(broker, message.machine.step(Instant(self.now), message.answer))

    def spread_metadata(self) -> None:
        up = self.up()
        if up:
            self.learn(self.rng.choice(up))

    def let_time_pass(self) -> None:
        self.now += self.rng.choice((0.5, 1.0, LAG_SECONDS + 0.1))
        for broker in self.up():
            self.wake(broker)

    def wake(self, broker: Broker) -> None:
        leader = broker.leader
        if leader is None:
            return
        if leader.proposed is not None and broker.proposal is not None:
            broker.attempts += 1
            self.network.append(Alter(broker.id, leader, broker.proposal))
        self.lead(broker, leader.step(Instant(self.now), leading.Woke()))

    def flush(self) -> None:
        broker = self.rng.choice(list(self.brokers.values()))
        broker.flushed = broker.log.end
        broker.checkpointed = broker.high_watermark

    def crash(self) -> None:
        up = self.up()
        if not up:
            return
        broker = self.rng.choice(up)
        broker.is_up = False
        broker.leader = broker.follower = None
        broker.acks.clear()
        broker.high_watermark = broker.checkpointed
        if self.rng.random() < 0.5 and self.controller.may_lose_power(broker.id):
            self.counts.power_losses += 1
            self.controller.powerless.add(broker.id)
            broker.log.truncate(max(broker.flushed, broker.log.start))
            broker.high_watermark = min(broker.high_watermark, broker.log.end)
        if self.rng.random() < 0.7:
            self.controller.fence(broker.id)

    def restart(self) -> None:
        down = [broker for broker in self.brokers.values() if not broker.is_up]
        if down:
            self.start(self.rng.choice(down))

    def start(self, broker: Broker) -> None:
        broker.is_up = True
        is_trusted = broker.id not in self.controller.powerless
        broker.broker_epoch = self.controller.register(broker.id, is_trusted=is_trusted)
        broker.seen = len(self.controller.history) - 2  # it catches up before it is unfenced
        broker.leader_epoch = -1
        self.learn(broker)

    def fence(self) -> None:
        live = sorted(self.controller.live)
        if len(live) > 1:
            self.controller.fence(self.rng.choice(live))

    def unfence(self) -> None:
        waiting = [broker for broker in self.up() if broker.id in self.controller.fenced]
        if waiting:
            broker = self.rng.choice(waiting)
            if broker.broker_epoch == self.controller.broker_epochs[broker.id]:
                self.controller.unfence(broker.id)

    def delete_records(self) -> None:
        for broker in self.up():
            if broker.leader is not None and broker.leader.has_reached_epoch_start:
                broker.log.advance_start(self.rng.randint(broker.log.start, broker.high_watermark))

    # --- brokers ---------------------------------------------------------------------------------------

    def learn(self, broker: Broker) -> bool:
        """The next committed metadata reach the broker."""
        if broker.seen + 1 >= len(self.controller.history):
            return False
        broker.seen += 1
        metadata = self.controller.history[broker.seen]
        broker.live.clear()
        broker.live.update(metadata.live)
        if metadata.leader_epoch > broker.leader_epoch:
            broker.leader_epoch = metadata.leader_epoch
            broker.leader = broker.follower = None
            if not self.mistakes.acks_by_offset_alone:
                broker.acks.clear()
            if metadata.leader == broker.id:
                self.become_leader(broker, metadata)
            elif metadata.leader >= 0:
                self.become_follower(broker, metadata)
        elif broker.leader is not None:
            change = PartitionChanged(metadata.partition_epoch, metadata.isr, BROKERS)
            now = Instant(self.now)
            self.lead(broker, broker.leader.step(now, change) + broker.leader.step(now, leading.Woke()))
        return True

    def become_leader(self, broker: Broker, metadata: Metadata) -> None:
        self.counts.elections += 1
        log = broker.log
        is_present = metadata.leader_epoch == self.controller.leader_epoch
        held = [*self.committed[: log.start], *log.items]
        if is_present and held[: len(self.committed)] != self.committed:
            raise Broken(
                "committed_never_lost", f"broker {broker.id} leads with {held}, not {self.committed}"
            )
        log.epochs.assign(metadata.leader_epoch, log.end)
        broker.high_watermark = max(broker.high_watermark, log.start)
        known = log.end if self.mistakes.leads_from_log_end else broker.high_watermark
        broker.leader = PartitionLeader(
            broker.id,
            Epoch(metadata.leader_epoch),
            metadata.isr,
            Offset(known),
            start_offset=log.end,
            replicas=BROKERS,
            partition_epoch=metadata.partition_epoch,
            min_insync_replicas=MIN_INSYNC,
            lag_seconds=LAG_SECONDS,
            live=broker.live,
            now=Instant(self.now),
        )
        if self.mistakes.leads_from_log_end:
            self.raised(broker, known)
        if broker.leader.local_end_moved(log.end):
            self.raised(broker, broker.leader.high_watermark)

    def become_follower(self, broker: Broker, metadata: Metadata) -> None:
        log = broker.log
        if self.mistakes.truncates_to_high_watermark:
            self.truncate(broker, broker.high_watermark)
        log.epochs.truncate_end(log.end)  # epochs that it led and wrote nothing in
        if self.mistakes.follower_assigns_epoch:
            log.epochs.assign(metadata.leader_epoch, log.end)
        broker.follower = PartitionFollower(
            BrokerId(metadata.leader),
            Epoch(metadata.leader_epoch),
            log,
            end=log.end,
            last_epoch=log.last_epoch,
            high_watermark=broker.high_watermark,
        )

    def lead(self, broker: Broker, orders: list[Any]) -> None:
        assert broker.leader is not None
        for order in orders:
            match order:
                case RaiseHighWatermark(offset):
                    self.raised(broker, offset)
                case ProposeIsr():
                    broker.proposal = order
                    broker.attempts = 1
                    self.network.append(Alter(broker.id, broker.leader, order))

    def serve(self, fetch: Fetch) -> None:
        broker = self.brokers[BrokerId(fetch.leader)]
        if not broker.is_up:
            return
        log, leader = broker.log, broker.leader
        answer = FetchAnswered(fetch.offset, fetch.last_epoch)
        if leader is None or leader.epoch != fetch.leader_epoch:
            answer.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            self.network.append(FetchAnswer(fetch, answer, False))
            return
        diverges = None
        if fetch.last_epoch >= 0 and not self.mistakes.truncates_to_high_watermark:
            diverges = lineage.find_replica_divergence(log, log.start, fetch.last_epoch, fetch.offset)
        if diverges is None and not log.start <= fetch.offset <= log.end:
            answer.error = ErrorCode.OFFSET_OUT_OF_RANGE
            answer.log_start_offset = log.start
            self.network.append(FetchAnswer(fetch, answer, False))
            return
        fetched = ReplicaFetched(
            fetch.broker, fetch.broker_epoch, fetch.leader_epoch, fetch.offset, diverges=diverges is not None
        )
        self.lead(broker, leader.step(Instant(self.now), fetched))
        answer.high_watermark = leader.high_watermark
        answer.log_start_offset = log.start
        answer.divergence = diverges
        has_records = diverges is None and fetch.offset < log.end
        self.network.append(FetchAnswer(fetch, answer, has_records))

    def follow(self, message: FetchAnswer) -> None:
        fetch, answer = message.fetch, message.answer
        broker = self.brokers[fetch.broker]
        if not broker.is_up or broker.follower is not fetch.follower:
            return
        # files are read when the answer leaves: they may have other records by then
        source = self.brokers[BrokerId(fetch.leader)].log
        records = source.read(fetch.offset, FETCHED_MAX) if message.has_records else []
        answer.has_records = bool(records)
        follower = broker.follower
        now = Instant(self.now)
        orders = list(follower.step(now, answer))
        while orders:
            match orders.pop(0):
                case AppendRecords():
                    taken = [one for one in records if one[0] <= follower.epoch]
                    if self.mistakes.appends_later_epochs:
                        taken = records
                    elif len(taken) < len(records):
                        taken = records[: next(n for n, one in enumerate(records) if one[0] > follower.epoch)]
                    for record in taken:
                        broker.log.append(record)
                    told = RecordsAppended(
                        broker.log.end, broker.log.last_epoch, broker.log.end, len(taken) == len(records)
                    )
                    orders += follower.step(now, told)
                case TruncateTo(offset):
                    self.truncate(broker, offset)
                    orders += follower.step(
                        now, LogTruncated(broker.log.end, broker.log.last_epoch, broker.flushed)
                    )
                case StartOverAt(offset):
                    broker.log.start_over(offset)
                    broker.flushed = min(broker.flushed, offset)
                    orders += follower.step(now, LogTruncated(offset, -1, offset))
                    broker.high_watermark = follower.high_watermark
                case AdvanceLogStart(offset):
                    broker.log.advance_start(offset)
                case RaiseHighWatermark(offset):
                    self.raised(broker, offset)

    def truncate(self, broker: Broker, offset: int) -> None:
        self.counts.truncations += 1
        if offset < broker.high_watermark:
            raise Broken(
                "truncation_spares_the_committed",
                f"broker {broker.id} cuts at {offset}, its high watermark is {broker.high_watermark}",
            )
        broker.log.truncate(offset)
        broker.flushed = min(broker.flushed, broker.log.end)

    def raised(self, broker: Broker, high_watermark: int) -> None:
        if high_watermark > broker.log.end:
            raise Broken("high_watermark_within_log", f"{high_watermark} of {broker.log.end}")
        if high_watermark < broker.high_watermark:
            raise Broken("high_watermark_monotonic", f"{high_watermark} after {broker.high_watermark}")
        broker.high_watermark = high_watermark
        for offset in range(max(broker.log.start, 0), high_watermark):
            record = broker.log.items[offset - broker.log.start]
            if offset < len(self.committed):
                if self.committed[offset] != record:
                    raise Broken(
                        "replicas_agree_below_high_watermark",
                        f"{record} at {offset} on broker {broker.id}, {self.committed[offset]} was committed",
                    )
            elif broker.leader is not None and offset == len(self.committed):
                self.committed.append(record)
                self.counts.committed += 1
        reached = [ack for ack in broker.acks if ack.end <= high_watermark]
        broker.acks = [ack for ack in broker.acks if ack.end > high_watermark]
        for ack in reached:
            self.acked[ack.value] = ack.end - 1
            self.counts.acked += 1
            held = self.committed[ack.end - 1] if ack.end <= len(self.committed) else None
            if held is None or held[1] != ack.value:
                raise Broken("acked_is_committed", f"value {ack.value} at {ack.end - 1}, there is {held}")

    # --- promises --------------------------------------------------------------------------------------

    def check(self) -> None:
        for broker in self.brokers.values():
            if broker.leader is not None:
                broker.leader.check()
            if broker.follower is not None:
                broker.follower.check()
            shown = min(broker.high_watermark, broker.log.end, len(self.committed))
            for offset in range(broker.log.start, shown):
                if broker.log.items[offset - broker.log.start] != self.committed[offset]:
                    raise Broken(
                        "replicas_agree_below_high_watermark", f"broker {broker.id} differs at {offset}"
                    )
