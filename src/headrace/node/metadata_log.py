"""The metadata log of this node: every decision about the cluster is written here before it is answered.

The voters keep it together (`machines/raft`): this module carries out what the quorum's machine orders, and
applies what is committed. `image` holds committed records only. The active controller decides on a copy of
its own, which the records of each decision reach at once, so that the next decision sees them; the copy is
made when it is elected and dropped when it resigns. Replies wait for the commit (`when_committed`).
Followers, the parts of the node that act on metadata, get a record when it is committed.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from headrace.base.randomness import Randomness
from headrace.base.time import Instant, Now
from headrace.machines.metadata.controller.decision import MetadataDecision
from headrace.machines.metadata.errors import BadMetadata
from headrace.machines.metadata.image import ClusterImage
from headrace.machines.raft import messages as raft
from headrace.machines.raft.replica_log import LogPoint
from headrace.machines.raft.voters import Voters
from headrace.node.error_codes import NotController
from headrace.node.known_offset import KnownOffset
from headrace.node.log_directories import LogDirectories
from headrace.node.metadata_files import (
    SnapshotContent,
    SnapshotId,
    Transaction,
    check_follows,
    decoded_batches,
    leader_change_batch,
    metadata_batch,
    replica_log,
    split_at_snapshot,
    voters_batches,
    voters_of,
)
from headrace.node.metadata_replies import CommittedReply, KnownReply
from headrace.node.metadata_store import MetadataStore
from headrace.node.ports import Once, Ports
from headrace.node.quorum_driver import QuorumDriver, open_quorum, read_quorum_state
from headrace.node.quorum_peers import QuorumPeers
from headrace.node.routes import Request
from headrace.node.settings import LiveSettings
from headrace.node.waiting import Parked, Waitable
from headrace.protocol.messages.control_records import Endpoint
from headrace.protocol.notation import Data
from headrace.records.errors import BadRecords
from headrace.storage.disk import Span
from headrace.storage.errors import DiskFull, LogOffline

# How long a leader that stops waits for the commit of its last decisions, and then until others know of it.
COMMIT_MS_MAX = 1_000

# After a mistake of ours half of a decision would be known here: the image, and snapshots of it, would
# contradict the log, or partitions miss their leader epochs. Other nodes go on without this one.
NOT_APPLIED = "metadata records could not be applied"

R = TypeVar("R")


class Follower(Protocol):
    """A part that acts on committed metadata."""

    def committed(self, now: Now, image: ClusterImage, records: list[Data], /) -> None:
        """These records are committed; the image is the state after them."""
        ...


class Decider(Protocol):
    """The controller role: what it is told about its own leadership."""

    def elected(self, now: Now, image: ClusterImage, /) -> None:
        """It decides from now on, on this image, which is its own: `propose` changes it."""
        ...

    def resigned(self, now: Now, /) -> None:
        """It does not decide any more, and what is not committed may never be."""
        ...


class MetadataLog(Waitable):
    """The metadata log, for whose commits requests wait."""

    __slots__ = (
        "_deadlines",
        "_decided",
        "_directories",
        "_driver",
        "_is_alone",
        "_known",
        "_known_leader",
        "_leaves_at",
        "_peers",
        "_reports",
        "_store",
        "_transaction",
        "_uncommitted",
        "_waiting",
        "_wants_flush",
        "applied",
        "caught_up",
        "followers",
        "image",
        "quorum",
        "removed",
        "role",
    )

    def __init__(
        self,
        settings: LiveSettings,
        directories: LogDirectories,
        rng: Randomness,
        ports: Ports,
        now: Now,
    ) -> None:
        """Recovers the log. Nothing is sent or decided before `start`."""
        super().__init__()
        self._directories = directories
        self._deadlines = ports.deadlines
        self._reports = ports.reports
        self._waiting = ports.waiting
        self.followers: list[Follower] = []
        self.applied = Waitable()  # by other nodes, which tell with their fetches
        self.role: Decider | None = None
        self.caught_up: list[Callable[[Now], None]] = []  # called once, when the image is not outdated
        self._store = MetadataStore(
            settings, directories, ports, now, flushed=self._flushed, snapshot_made=self._snapshot_made
        )
        current = settings.current
        loaded = directories.sound_metadata.loaded
        directory_id = directories[directories.metadata_log_dir].directory_id
        state = read_quorum_state(self._store.disk)
        self.quorum = open_quorum(current, directory_id, replica_log(loaded), state, rng)
        self._driver = QuorumDriver(self.quorum, directories, ports, self._change, self._settled)
        self._peers = QuorumPeers(current, directories.cluster_id, ports, self._driver.step)
        self._peers.learn(record for _, record in loaded.voters)
        self._driver.connect(self._peers)
        self._wants_flush = False  # when the effects are carried out
        self._known_leader = (self.quorum.leader_id, self.quorum.epoch)  # that waiters were told
        # end offset and records of batches that are not committed, or not known to be, the oldest first
        self._uncommitted: deque[tuple[int, list[Data]]] = deque()
        self._decided: ClusterImage | None = None  # the active controller's own
        # in a stop: when it resigns, whatever is not committed, and when it does not wait for others any more
        self._leaves_at: tuple[Instant, Instant] | None = None
        self.removed = loaded.removed  # ids of topics that the replayed records removed
        self.image = loaded.image
        self._is_alone = self.quorum.voters.ids == (current.node_id,)
        if not self._is_alone:
            # with other voters it is not known what of the log is committed, beyond what is in a snapshot
            self.removed = frozenset()
            self.image, batches = split_at_snapshot(self._store.disk, loaded)
            self._uncommitted.extend((batch.next_offset, batch.records) for batch in batches)
        self._transaction = Transaction(self.image)
        self._known = KnownOffset(
            lambda: (broker.id for broker in self.image.live_brokers()), self.quorum.applied_offset
        )

    def start(self, now: Now) -> None:
        """Takes part in the quorum; a sole voter leads at once. DiskFull, LogOffline: it cannot begin."""
        self._driver.start(now)

    # --- questions -----------------------------------------------------------------------------------------

    @property
    def committed_offset(self) -> int:
        """The end of the committed part, which the image contains."""
        return self.quorum.high_watermark

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._store.end_offset

    @property
    def image_offset(self) -> int:
        """The image has the records before this offset."""
        return self.quorum.high_watermark

    @property
    def leader_id(self) -> int:
        """The active controller, or the one that will soon be; -1: not known."""
        return self.quorum.leader_id

    @property
    def leader_epoch(self) -> int:
        """The newest epoch that this node knows."""
        return self.quorum.epoch

    @property
    def is_settled(self) -> bool:
        """Whether everything that the quorum has ordered is carried out; its epoch and vote are durable."""
        return self._driver.is_settled

    @property
    def is_active(self) -> bool:
        """Whether this node leads the quorum, and an entry of its epoch is committed. Nobody can lead in the
        place of a sole voter.
        """
        return self.quorum.is_active or (self._is_alone and self._decided is not None)

    @property
    def deciding_epoch(self) -> int:
        """In which this node may decide; -1: it may not."""
        return self.quorum.epoch if self._decided is not None else -1

    @property
    def is_caught_up(self) -> bool:
        """Whether the image was, at some moment since the start, as new as the leader's."""
        return self.quorum.is_caught_up or self._is_alone

    def when_committed(
        self, request: Request, offset: int, reply: R | Callable[[Now], R]
    ) -> "R | CommittedReply":
        """The reply to a request that was decided, once its records are committed; NOT_CONTROLLER if this
        node resigns before. `reply` is the message, or makes it then.
        """
        if self.quorum.high_watermark < offset:
            return CommittedReply(self._waiting, self, request, offset, reply)
        return reply(request.now) if callable(reply) else reply

    def when_known(self, request: Request, offset: int, reply: R | Callable[[Now], R]) -> R | Parked:
        """The same, once all live brokers have applied the change, or after a while. A client may ask any
        broker next, and expects to find what it has just changed.
        """
        if self.quorum.high_watermark < offset:
            return CommittedReply(self._waiting, self, request, offset, reply, is_for_all=True)
        if not self.is_known(offset):
            return KnownReply(self._waiting, self, request, request.now, offset, reply)
        return reply(request.now) if callable(reply) else reply

    def is_known(self, offset: int) -> bool:
        """Whether all live brokers have applied everything before this offset, as far as they told."""
        return self._known.includes(offset)

    @property
    def voter_ids(self) -> tuple[int, ...]:
        return self.quorum.voters.ids

    def endpoints(self, voter_id: int) -> list[Endpoint]:
        """The controller listeners of a voter."""
        return self._peers.endpoints(voter_id)

    def when_durable(self, request: Request, reply: R) -> R:
        """A reply that was made from the image: nothing in that can be lost."""
        return reply

    # --- decisions -----------------------------------------------------------------------------------------

    def propose(self, now: Now, decision: MetadataDecision[Any]) -> int:
        """Append a decision's records, and replay them for the next decision. Its reply is true once the
        offset returned is committed.

        DiskFull, LogOffline, NotController: nothing has changed.
        """
        image = self._decided
        if image is None:
            raise NotController("this node is not the active controller")
        records = decision.records
        if not records:
            return self._store.end_offset
        base_offset, epoch = self._store.end_offset, self.quorum.epoch
        self._store.append(now, metadata_batch(records, base_offset, epoch, now.wall_ms), len(records))
        with self._reports.halting(NOT_APPLIED):
            for record in records:
                image.replay(record)
        end_offset = self._store.end_offset
        self._uncommitted.append((end_offset, records))
        self._step(now, raft.Appended(end_offset, ((epoch, base_offset),)))
        self._store.flush(now)
        return end_offset

    # --- requests of other nodes ---------------------------------------------------------------------------

    def ask(self, request: Request, message: raft.Message, respond: Callable[[raft.Answer], Any]) -> Any:
        """The response to a request in the quorum, now or later; `respond` makes it of the answer."""
        reply = self._driver.ask(request, message, respond)
        if isinstance(message, raft.Fetch) and self._known.broker_told(message.replica.id):
            self._waiting.wake(self.applied)
        return reply

    def read(self, offset: int, bytes_max: int) -> Span | None:
        """Batches from `offset` on, for a replica; None: there are none."""
        return self._store.read(offset, bytes_max)

    def read_snapshot(self, snapshot: LogPoint, position: int, bytes_max: int) -> tuple[bytes, int]:
        """A piece of a snapshot, and the size of the whole. OSError: it is gone."""
        return self._store.read_snapshot(SnapshotId(*snapshot), position, bytes_max)

    # --- the quorum's machine ------------------------------------------------------------------------------

    def _step(self, now: Now, event: raft.Event) -> None:
        self._driver.step(now, event)

    def _change(self, now: Now, effect: raft.Effect) -> bool:
        """Carry out what the quorum orders about the log; False: that is not done yet."""
        match effect:
            case raft.AdvanceHighWatermark(offset):
                self._commit(now, offset)
            case raft.AppendFetched(records):
                self._append_fetched(now, records)
            case raft.AppendLeaderChange(epoch, voters, granting):
                local_id, offset = self.quorum.local.id, self._store.end_offset
                batch = leader_change_batch(local_id, voters, granting, offset, epoch, now.wall_ms)
                self._append_control(now, epoch, [batch])
            case raft.AppendVoters(epoch, voters):
                record = self._peers.voters_record(voters)
                batches = voters_batches(record, self._store.end_offset, epoch, now.wall_ms)
                self._append_control(now, epoch, batches, voters)
            case raft.Lead(epoch):
                self._known.forget()
                self._reports.report("info", "quorum_leader", epoch=epoch)
                self._tell_elected(now)
            case raft.StepDown(epoch):
                self._step_down(now, epoch)
            case raft.Truncate(end_offset):
                return self._truncate(now, end_offset)
            case raft.WriteSnapshot():
                self._write_snapshot(now, effect)
            case raft.Fail(reason):
                self._reports.halt(f"the metadata log contradicts that of other nodes: {reason}")
            case _:
                raise AssertionError(f"{effect} is not about the log")
        return True

    def _settled(self, now: Now) -> None:
        """All that was ordered is carried out."""
        leader = (self.quorum.leader_id, self.quorum.epoch)
        if leader != self._known_leader:
            self._known_leader = leader
            self._waiting.wake(self)
        self._tell_caught_up(now)
        if self._wants_flush:
            self._wants_flush = False
            self._store.flush(now)

    # --- what is appended ----------------------------------------------------------------------------------

    def _append_control(
        self, now: Now, epoch: int, batches: list[bytes], voters: Voters | None = None
    ) -> None:
        base_offset = self._store.end_offset
        try:
            self._store.append(now, b"".join(batches), len(batches))
        except (DiskFull, LogOffline) as fault:
            if self._driver.is_starting:
                raise
            self._reports.report("error", "metadata_append_failed", error=str(fault))
            self._step(now, raft.AppendFailed())
            return
        self._wants_flush = True
        end_offset = self._store.end_offset
        told = ((end_offset - 1, voters),) if voters is not None else ()
        self._step(now, raft.Appended(end_offset, ((epoch, base_offset),), told))

    def _append_fetched(self, now: Now, data: bytes) -> None:
        """The leader's batches. Those that do not follow on what is here are refused as a whole."""
        try:
            batches = list(decoded_batches(data))
            check_follows(batches, self.quorum.log.end, self.quorum.epoch)
            self._store.append(now, data, sum(len(batch.records) for batch in batches))
        except (BadMetadata, BadRecords, DiskFull, LogOffline) as fault:
            self._reports.report("error", "metadata_append_failed", error=str(fault))
            self._step(now, raft.AppendFailed())
            return
        self._wants_flush = True
        for batch in batches:
            self._uncommitted.append((batch.next_offset, batch.records))
            self._peers.learn(record for _, record in batch.voters)
        self._step(
            now,
            raft.Appended(
                self._store.end_offset,
                tuple((batch.epoch, batch.base_offset) for batch in batches),
                tuple((offset, voters_of(record)) for batch in batches for offset, record in batch.voters),
            ),
        )

    def _truncate(self, now: Now, end_offset: int) -> bool:
        self._reports.report("info", "metadata_truncated", end_offset=end_offset)
        while self._uncommitted and self._uncommitted[-1][0] > end_offset:
            self._uncommitted.pop()
        return self._store.cut(now, end_offset, self._driver.go_on)

    def _flushed(self, now: Now) -> None:
        self._step(now, raft.Flushed(self._store.flushed_offset))
        if self._store.flushed_offset == self._store.end_offset:
            self._store.snapshot_if_due(now, self.quorum.high_watermark)

    # --- commits and leadership ----------------------------------------------------------------------------

    def _commit(self, now: Now, offset: int) -> None:
        uncommitted = self._uncommitted
        while uncommitted and uncommitted[0][0] <= offset:
            _, records = uncommitted.popleft()
            if records:
                self._apply(now, records)
        self._waiting.wake(self)
        self._tell_elected(now)

    def _apply(self, now: Now, records: list[Data]) -> None:
        with self._reports.halting(NOT_APPLIED):
            for record in records:
                self._transaction.replay(record)
            self._known.forget()
            for follower in self.followers:
                follower.committed(now, self.image, records)

    def _tell_caught_up(self, now: Now) -> None:
        if self.caught_up and self.quorum.is_caught_up:
            then, self.caught_up = self.caught_up, []
            for each in then:
                each(now)

    def _tell_elected(self, now: Now) -> None:
        """The controller role decides once all that earlier leaders decided is known."""
        if self._decided is not None or not self.quorum.may_decide:
            return
        self._tell_caught_up(now)  # the broker of this process sees damage before it is registered
        self._decided = self.image.copy()
        if self.role is not None:
            self._wants_flush = True
            self.role.elected(now, self._decided)

    def _step_down(self, now: Now, epoch: int) -> None:
        self._known.forget()
        self._reports.report("info", "quorum_leader_resigned", epoch=epoch)
        if self._decided is not None:
            self._decided = None
            if self.role is not None:
                self.role.resigned(now)
        self._waiting.wake(self)

    # --- snapshots -----------------------------------------------------------------------------------------

    def _snapshot_made(self, now: Now, snapshot: SnapshotId) -> None:
        self._step(now, raft.SnapshotMade(LogPoint(*snapshot), snapshot.end_offset))

    def _write_snapshot(self, now: Now, effect: raft.WriteSnapshot) -> None:
        snapshot = SnapshotId(*effect.snapshot)
        try:
            self._store.write_piece(snapshot, effect.position, effect.piece)
        except OSError as error:
            self._reports.report("error", "metadata_snapshot_failed", error=str(error))
            self._directories.job_failed(now, self._store.directory, error)
            self._step(now, raft.SnapshotFailed())
            return
        if effect.is_last:
            self._store.install_snapshot(
                now, snapshot, lambda now, content: self._installed(now, snapshot, content)
            )

    def _installed(self, now: Now, snapshot: SnapshotId, content: SnapshotContent | None) -> None:
        if content is None:
            self._step(now, raft.SnapshotFailed())
            return
        from headrace.machines.metadata.difference import difference

        self._uncommitted.clear()
        records = list(difference(self.image, content.image))
        self._apply(now, records)
        voters = None
        if content.voters is not None:
            self._peers.learn([content.voters])
            voters = voters_of(content.voters)
        self._step(now, raft.SnapshotInstalled(LogPoint(*snapshot), voters))

    # --- the end -------------------------------------------------------------------------------------------

    @property
    def is_flushed(self) -> bool:
        store = self._store
        return not store.is_flushing and store.flushed_offset == store.end_offset

    def is_majority_gone(self, now: Now) -> bool:
        """In a stop: whether so many voters have ended that nothing will be decided or committed. The first
        call begins to ask them.
        """
        return self._peers.dials(now, self.quorum.voters).is_majority_gone

    def hand_over(self, now: Now) -> bool:
        """Before a stop: whether this node leads no other voters any more. It resigns when its last decisions
        are committed, or cannot be.
        """
        quorum = self.quorum
        if self._is_alone:
            return True
        if self._leaves_at is None:
            self._leaves_at = now.after_ms(COMMIT_MS_MAX), now.after_ms(2 * COMMIT_MS_MAX)
            for at in self._leaves_at:
                Once(self._deadlines, at, lambda now: None)  # then the node asks again
        resigns_at, gives_up_at = self._leaves_at
        has_uncommitted = quorum.is_leader and quorum.high_watermark < self._store.end_offset
        if has_uncommitted and now.mono < resigns_at and not self.is_majority_gone(now):
            return False
        if not quorum.is_stopping:
            self._step(now, raft.ShutdownBegan())
        return quorum.has_handed_over or now.mono >= gives_up_at
