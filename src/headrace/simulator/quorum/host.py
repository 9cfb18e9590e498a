"""A node of the simulated quorum: its machine, which it drives as the node's driver does, and its disk."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.machines.raft.messages import (
    AdvanceHighWatermark,
    Answer,
    Appended,
    AppendFetched,
    AppendLeaderChange,
    AppendVoters,
    Asked,
    Effect,
    Event,
    Fail,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    Flushed,
    Lead,
    Message,
    PersistQuorumState,
    Reply,
    Send,
    SnapshotAnswer,
    SnapshotInstalled,
    SnapshotMade,
    Started,
    StepDown,
    Truncate,
    Vote,
    VoteAnswer,
    WriteSnapshot,
)
from headrace.machines.raft.quorum import Quorum
from headrace.machines.raft.quorum_state import QuorumState
from headrace.machines.raft.replica_log import LogPoint, ReplicaLog
from headrace.machines.raft.voters import VoterKey, Voters
from headrace.protocol.errors import ErrorCode
from headrace.simulator.quorum.entries import Entry, QuorumDisk, epochs_of, voters_of

if TYPE_CHECKING:
    from headrace.simulator.quorum.simulation import QuorumSimulation


class QuorumHost:
    """A node with its disk; while it is down, `quorum` is None."""

    def __init__(self, simulation: "QuorumSimulation", key: VoterKey, configured: Voters) -> None:
        self.simulation = simulation
        self.key = key
        self.configured = configured
        self.disk = QuorumDisk(key.directory_id)
        self.life = 0
        self.starts = 0
        self.quorum: Quorum | None = None
        self.entries: list[Entry] = []  # with what is not synced
        self.start_offset = 0
        self.is_flushing = False
        self.tickets: dict[int, Callable[[Answer], None]] = {}
        self.pieces: list[Entry] = []  # of a snapshot that is being fetched

    @property
    def id(self) -> int:
        return self.key.id

    @property
    def up(self) -> Quorum:
        assert self.quorum is not None, f"{self.id} is down"
        return self.quorum

    def start(self) -> None:
        self.life += 1
        self.starts += 1
        self.key = VoterKey(self.key.id, self.disk.directory_id)
        self.entries = list(self.disk.entries)
        self.start_offset = self.disk.start_offset
        self.is_flushing = False
        self.tickets = {}
        end, start = len(self.entries), self.start_offset
        snapshot = None
        if self.disk.snapshot_end:
            last = self.disk.snapshot_end
            snapshot = LogPoint(last, self.entries[last - 1].epoch)
        log = ReplicaLog(
            start_offset=start,
            end_offset=end,
            epochs=epochs_of(self.entries, max(start - 1, 0)),
            snapshot=snapshot,
            voters=voters_of(self.entries, 0, end),
        )
        self.quorum = Quorum(
            self.key,
            self.configured,
            log,
            self.disk.state,
            self.simulation.times,
            self.simulation.machine_rng,
        )
        self.simulation.judges.high_watermarks[self.id] = 0
        self.step(Started())

    def crash(self) -> None:
        """The process and the page cache are gone; some of what was not synced may be on the disk."""
        rng = self.simulation.rng
        synced = self.disk.entries
        same = 0
        while same < min(len(synced), len(self.entries)) and synced[same] == self.entries[same]:
            same += 1
        if rng.random() < 0.5:
            self.disk.entries = self.entries[: rng.randint(same, len(self.entries))]
        if len(self.disk.entries) < self.disk.start_offset:
            self.disk.entries = synced
        self.quorum = None
        self.life += 1

    def lose_disk(self) -> None:
        assert self.quorum is None
        self.disk = QuorumDisk(self.simulation.rng.randbytes(16))

    # --- the driver ----------------------------------------------------------------------------------------

    def step(self, event: Event) -> None:
        """Carry out what follows from an event; a crash may come between two effects."""
        life = self.life
        quorum = self.up
        pending = quorum.step(self.simulation.now, event)
        while pending:
            following: list[Effect] = []
            for effect in pending:
                self.simulation.watch(self, effect)
                for result in self._carry_out(effect):
                    following += quorum.step(self.simulation.now, result)
                if self.simulation.crashes_now():
                    self.crash()
                if self.life != life:
                    return
            pending = following
        quorum.check()
        self.simulation.wake_later(self)

    def _carry_out(self, effect: Effect) -> list[Event]:
        match effect:
            case PersistQuorumState(state):
                self.persist(state)
            case Send(peer, request):
                self.simulation.send(self, peer, request)
            case Reply(ticket, answer):
                reply = self.tickets.pop(ticket, None)
                if reply is not None:
                    reply(answer)
            case AppendLeaderChange(epoch):
                return [self._append([Entry(epoch, "leader")])]
            case AppendVoters(epoch, voters):
                return [self._append([Entry(epoch, voters)])]
            case AppendFetched(records):
                return [self._append(records)]
            case Truncate(end_offset):
                del self.entries[end_offset:]
            case WriteSnapshot(snapshot, position, piece, is_last):
                del self.pieces[position:]
                self.pieces += piece
                if is_last:
                    return [self._install(snapshot)]
            case AdvanceHighWatermark(offset):
                self.simulation.judges.advanced(self, offset)
            case Lead(epoch):
                self.simulation.judges.led(self, epoch)
            case Fail(reason):
                self.simulation.judges.failed(self, reason)
            case StepDown():
                pass
        return []

    def persist(self, state: QuorumState) -> None:
        self.disk.state = state

    def _append(self, entries: list[Entry]) -> Appended:
        base = len(self.entries)
        self.entries += entries
        end = len(self.entries)
        self._flush_later()
        starts = [
            (one.epoch, base + place)
            for place, one in enumerate(entries)
            if place == 0 or entries[place - 1].epoch != one.epoch
        ]
        return Appended(end, tuple(starts), tuple(voters_of(self.entries, base, end)))

    def _install(self, snapshot: LogPoint) -> SnapshotInstalled:
        self.entries = list(self.pieces)
        assert len(self.entries) == snapshot.end_offset
        self.pieces = []
        self.start_offset = self.disk.start_offset = self.disk.snapshot_end = snapshot.end_offset
        self.disk.entries = list(self.entries)
        voters = voters_of(self.entries, 0, len(self.entries))
        return SnapshotInstalled(snapshot, voters[-1][1] if voters else None)

    def make_snapshot(self) -> None:
        """Of all that is committed; the log begins there from now on."""
        end = self.up.high_watermark
        if end > self.start_offset:
            self.start_offset = self.disk.start_offset = self.disk.snapshot_end = end
            self.step(SnapshotMade(LogPoint(end, self.entries[end - 1].epoch), end))

    def propose(self, value: Any) -> None:
        assert self.up.is_leader
        self.step(self._append([Entry(self.up.epoch, value)]))

    def _flush_later(self) -> None:
        if self.is_flushing:
            return
        self.is_flushing = True
        life, entries = self.life, list(self.entries)

        def flushed() -> None:
            if self.life != life:
                return
            self.is_flushing = False
            same = 0  # what was truncated since is not flushed, though it was written
            while same < min(len(entries), len(self.entries)) and entries[same] == self.entries[same]:
                same += 1
            if len(entries) >= self.start_offset:
                self.disk.entries = entries if same == len(entries) else self.entries[:same]
            if same < len(self.entries):
                self._flush_later()
            self.step(Flushed(same))

        self.simulation.at(self.simulation.flush_seconds(), flushed)

    # --- requests of others --------------------------------------------------------------------------------

    def ask(self, request: Message, reply: Callable[[Answer], None]) -> None:
        ticket = next(self.simulation.tickets)

        def filled(answer: Answer) -> None:
            if isinstance(answer, FetchAnswer) and answer.error is ErrorCode.NONE:
                assert isinstance(request, Fetch)
                if answer.divergence is None and answer.snapshot is None:
                    first = request.end.end_offset
                    assert first >= self.start_offset, "entries before the log's start are asked for"
                    answer.records = self.entries[first : first + self.simulation.fetched_max]
            elif isinstance(answer, SnapshotAnswer) and answer.error is ErrorCode.NONE:
                assert isinstance(request, FetchSnapshot)
                snapshot, position = request.snapshot, request.position
                answer.size = snapshot.end_offset
                answer.piece = self.entries[
                    position : min(position + self.simulation.fetched_max, snapshot.end_offset)
                ]
            if isinstance(answer, VoteAnswer) and answer.is_granted:
                assert isinstance(request, Vote)
                if not request.is_pre_vote:
                    self.simulation.judges.voted(self.key, request.epoch, request.candidate)
            reply(answer)

        self.tickets[ticket] = filled
        self.step(Asked(ticket, request))
