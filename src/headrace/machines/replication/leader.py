"""The leader's side of one partition, for one leader epoch: in-sync replicas and the high watermark.

    fact                                    order
    LocalEndMoved, ReplicaFetched           RaiseHighWatermark, ProposeIsr
    PartitionChanged, IsrCommitted          RaiseHighWatermark, ProposeIsr
    IsrRejected                             RaiseHighWatermark, ProposeIsr
    IsrOutdated                             (none)
    LogDamaged                              ProposeIsr (without the leader itself)
    Woke                                    RaiseHighWatermark, ProposeIsr (a replica fell behind)

What lies below the high watermark is on every replica that may be elected, so no clean election loses it.
While a change of the in-sync set is under way, the leader cannot know which of the two sets counts: the high
watermark is the lowest end over the larger one (Kafka's "maximal ISR"). It never falls within a leader epoch.

A replica's fetch tells that it holds everything before the offset that it asks for. This is true only for a
fetch in this leader epoch, from the replica's present life (its broker epoch), and with the leader's own
lineage: other fetches count for nothing.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType

from headrace.base.ids import BrokerId, Epoch, Offset
from headrace.base.time import Instant
from headrace.base.values import Value

UNKNOWN = Offset(-1)  # the end of a replica that has not fetched in this leader epoch
LONG_AGO = Instant(float("-inf"))
NO_BROKER_EPOCH = -1

LAG_SECONDS = 30.0  # default of replica.lag.time.max.ms

# After the controller rejected a change, the next proposal waits so long: what it objected to (a broker that
# shuts down or is fenced) reaches this broker with the metadata, usually sooner.
REJECTED_SECONDS = 0.5

NOBODY: Mapping[BrokerId, int] = MappingProxyType({})


class IsrCounts:
    """How often in-sync sets have lost and got members, of all leaders that share it. For operators only."""

    __slots__ = ("expands", "shrinks")

    def __init__(self) -> None:
        self.shrinks = 0
        self.expands = 0

    def changed(self, before: frozenset[BrokerId], after: frozenset[BrokerId]) -> None:
        self.shrinks += bool(before - after)
        self.expands += bool(after - before)


# --- facts ------------------------------------------------------------------------------------------------


class LocalEndMoved(Value):
    """The leader's own promise reaches `end` now: its log end, or its flushed end if each message is
    flushed.
    """

    end: int


class ReplicaFetched(Value):
    replica: BrokerId
    broker_epoch: int
    leader_epoch: int
    offset: int  # it holds everything before
    diverges: bool = False  # it holds records that the leader does not have
    log_start: int = 0  # where its log begins


class PartitionChanged(Value):
    """Committed metadata of this partition, in the same leader epoch."""

    partition_epoch: int
    isr: Collection[BrokerId]
    replicas: Collection[BrokerId]


class IsrCommitted(Value):
    """The controller accepted the proposal of `asked_in` (a partition epoch)."""

    asked_in: int
    partition_epoch: int
    isr: Collection[BrokerId]


class IsrRejected(Value):
    """The controller refused the proposal. If it was sent once only, it will never be committed. If it was
    sent again because an answer was lost, an earlier copy may still arrive, at a controller that by then has
    nothing against it.
    """

    asked_in: int
    is_final: bool = True


class IsrOutdated(Value):
    """The controller knows a later state of the partition. The proposal may have been committed by an
    earlier attempt whose answer was lost: only the metadata tell.
    """

    asked_in: int


class LogDamaged(Value):
    """The leader's own log has records that cannot be read: another replica should lead."""


class Woke(Value):
    """The deadline has passed, or the set of live brokers has changed."""


Fact = (
    LocalEndMoved
    | ReplicaFetched
    | PartitionChanged
    | IsrCommitted
    | IsrRejected
    | IsrOutdated
    | LogDamaged
    | Woke
)


# --- orders -----------------------------------------------------------------------------------------------


class RaiseHighWatermark(Value):
    offset: Offset


class ProposeIsr(Value):
    """Ask the controller for this in-sync set, on top of that partition epoch, until it answers."""

    partition_epoch: int
    isr: tuple[tuple[BrokerId, int], ...]  # with broker epochs (KIP-903); -1 where the leader knows none


Order = RaiseHighWatermark | ProposeIsr


class Progress:
    """What the leader knows of one follower in this leader epoch."""

    __slots__ = ("broker_epoch", "caught_up_at", "end", "fetched_at", "leader_end", "log_start")

    def __init__(self, caught_up_at: Instant) -> None:
        self.broker_epoch = NO_BROKER_EPOCH  # of the life that `end` belongs to
        self.end = UNKNOWN
        self.caught_up_at = caught_up_at  # when it last held all that the leader had
        self.fetched_at = LONG_AGO
        self.leader_end = 0  # where the leader's promise ended at that fetch
        self.log_start = 0

    def fetched(self, now: Instant, offset: int, log_start: int, leader_end: int) -> None:
        if offset >= leader_end:
            self.caught_up_at = now
        elif offset >= self.leader_end and self.fetched_at > self.caught_up_at:
            self.caught_up_at = self.fetched_at  # it has all that the leader had then
        self.end = Offset(offset)
        self.log_start = log_start
        self.fetched_at = now
        self.leader_end = leader_end

    def is_caught_up(self, now: Instant, leader_end: int, lag_seconds: float) -> bool:
        return self.end >= leader_end or now - self.caught_up_at <= lag_seconds


class PartitionLeader:
    """Invariants: the leader is in its in-sync set; the high watermark does not fall, and rises only up to
    the end of every replica in the committed and in the proposed in-sync set.
    """

    __slots__ = (
        "_doubtful",
        "_has_begun",
        "_is_online",
        "_isr_counts",
        "_lag_seconds",
        "_live",
        "_local_end",
        "_lowest_end",
        "_may_rise",
        "_min_insync_replicas",
        "_proposes_at",
        "_resigns",
        "deleted_before",
        "epoch",
        "followers",
        "high_watermark",
        "id",
        "isr",
        "partition_epoch",
        "proposed",
        "replicas",
        "start_offset",
    )

    def __init__(
        self,
        id: BrokerId,
        epoch: Epoch,
        isr: Iterable[BrokerId],
        high_watermark: Offset,
        *,
        start_offset: int | None = None,
        replicas: Iterable[BrokerId] = (),
        partition_epoch: int = 0,
        min_insync_replicas: int = 1,
        lag_seconds: float = LAG_SECONDS,
        live: Mapping[BrokerId, int] = NOBODY,
        is_online: Callable[[BrokerId], bool] = lambda replica: True,
        isr_counts: IsrCounts | None = None,
        now: Instant = LONG_AGO,
    ) -> None:
        """`high_watermark` is what this replica knows as committed: from its checkpoint or from the leader
        before. Its log may go on behind it. `live` has the broker epochs of all brokers that are registered
        and not fenced; whoever owns it keeps it up to date. `is_online` answers for a live broker whether
        the log directory of its replica has not failed.
        """
        self.id = id
        self.epoch = epoch
        self.isr = frozenset(isr) | {id}
        self.replicas = frozenset(replicas) | self.isr
        self.partition_epoch = partition_epoch
        self.proposed: frozenset[BrokerId] | None = None  # on top of this partition epoch, not answered yet
        self._doubtful: frozenset[BrokerId] = frozenset()  # of proposals that may yet be committed
        self.high_watermark = high_watermark
        self._has_begun = start_offset is not None
        self.start_offset = start_offset or 0  # where the log ended when this leader epoch began
        # where the log began then, or begins since a client was told so: whoever begins earlier, and leads
        # next, would bring back what was deleted
        self.deleted_before = 0
        self.followers = {
            replica: Progress(now if replica in self.isr else LONG_AGO)
            for replica in sorted(self.replicas - {id})
        }
        self._live = live
        self._is_online = is_online
        self._isr_counts = isr_counts or IsrCounts()
        self._lag_seconds = lag_seconds
        self._min_insync_replicas = min_insync_replicas
        self._local_end = int(high_watermark)
        self._proposes_at = LONG_AGO
        self._resigns = False  # as soon as another replica can lead
        self._lowest_end: int | None = None  # of the followers that count; None: there is none
        self._may_rise = True  # enough replicas are in sync
        self._count(now)

    def begin(self, now: Instant, log_start: int, start_offset: int, high_watermark: int) -> None:
        """The log was opened. Whoever makes a leader before that knows none of these offsets."""
        if self._has_begun:
            return  # it was closed for a while, because it moved
        self._has_begun = True
        self.deleted_before = log_start
        self.start_offset = start_offset
        self.high_watermark = Offset(max(log_start, high_watermark, self.high_watermark))
        self._count(now)

    # --- facts -----------------------------------------------------------------------------------------

    def step(self, now: Instant, fact: Fact) -> list[Order]:
        match fact:
            case LocalEndMoved(end):
                return self._raised(self.local_end_moved(end))
            case ReplicaFetched():
                return self._fetched(now, fact)
            case PartitionChanged():
                return self._changed(now, fact)
            case IsrCommitted():
                if self.proposed is None or fact.asked_in != self.partition_epoch:
                    return []  # the metadata were quicker
                return self._commit(now, fact.partition_epoch, fact.isr)
            case IsrRejected():
                if self.proposed is None or fact.asked_in != self.partition_epoch:
                    return []
                return self._rejected(now, fact)
            case IsrOutdated():
                return []  # the proposal goes on counting until the metadata tell
            case LogDamaged():
                self._resigns = True
                return self._adjust(now)
            case Woke():
                return self._recount(now) + self._adjust(now)

    def local_end_moved(self, end: int) -> bool:
        """What `LocalEndMoved` does, for each batch that is appended; True when the high watermark rose."""
        self._local_end = end
        lowest = self._lowest_end
        if lowest is not None and lowest < end:
            end = lowest
        if end <= self.high_watermark or not self._may_rise:
            return False
        self.high_watermark = end  # type: ignore[assignment]  # for every batch: Offset() is a slow call
        return True

    def configure(self, now: Instant, min_insync_replicas: int, lag_seconds: float) -> list[Order]:
        self._min_insync_replicas = min_insync_replicas
        self._lag_seconds = lag_seconds
        return self._recount(now)

    def _fetched(self, now: Instant, fetch: ReplicaFetched) -> list[Order]:
        follower = self.followers.get(fetch.replica)
        if (
            follower is None
            or fetch.leader_epoch != self.epoch
            or fetch.diverges
            or self._is_of_an_earlier_life(fetch, follower)
        ):
            return []
        if fetch.broker_epoch != follower.broker_epoch:
            caught_up_at = follower.caught_up_at if follower.end == UNKNOWN else LONG_AGO
            follower = self.followers[fetch.replica] = Progress(caught_up_at)
            follower.broker_epoch = fetch.broker_epoch
        follower.fetched(now, fetch.offset, fetch.log_start, self._local_end)
        orders = self._recount(now)
        if self.proposed is None and self._may_join(now, fetch.replica, follower):
            orders += self._adjust(now)
        return orders

    def _is_of_an_earlier_life(self, fetch: ReplicaFetched, follower: Progress) -> bool:
        known = self._live.get(fetch.replica, NO_BROKER_EPOCH)
        return fetch.broker_epoch < max(known, follower.broker_epoch)

    def _changed(self, now: Instant, change: PartitionChanged) -> list[Order]:
        if change.partition_epoch <= self.partition_epoch:
            return []  # the controller's answer was quicker
        self.replicas = frozenset(change.replicas) | {self.id}
        for replica in sorted(self.replicas - {self.id} - self.followers.keys()):
            self.followers[replica] = Progress(LONG_AGO)
        for replica in self.followers.keys() - self.replicas:
            del self.followers[replica]
        return self._commit(now, change.partition_epoch, change.isr)

    def _commit(self, now: Instant, partition_epoch: int, isr: Collection[BrokerId]) -> list[Order]:
        for replica in set(isr) - self.isr - {self.id}:
            if replica in self.followers:  # it is given the usual time to catch up
                follower = self.followers[replica]
                follower.caught_up_at = max(follower.caught_up_at, now)
        before, self.isr = self.isr, frozenset(isr) | {self.id}
        self._isr_counts.changed(before, self.isr)
        self.partition_epoch = partition_epoch
        self.proposed = None
        self._doubtful = frozenset()
        # whoever came to be in sync meanwhile does not fetch again while nothing is appended
        return self._recount(now) + self._adjust(now)

    def _rejected(self, now: Instant, answer: IsrRejected) -> list[Order]:
        assert self.proposed is not None
        if not answer.is_final:
            # to ask for what is committed changes the partition epoch alone: no copy is valid after that
            self._doubtful |= self.proposed
            self._proposes_at = Instant(now + REJECTED_SECONDS)
            return [self._propose(now, self.isr)]
        self.proposed = None
        self._proposes_at = Instant(now + REJECTED_SECONDS)
        return self._recount(now)

    # --- in-sync replicas ------------------------------------------------------------------------------

    def is_eligible(self, replica: BrokerId, follower: Progress) -> bool:
        """Whether the life that fetched is the one that is registered and not fenced, and can still read its
        replica.
        """
        return self._live.get(replica) == follower.broker_epoch and self._is_online(replica)

    def _may_join(self, now: Instant, replica: BrokerId, follower: Progress) -> bool:
        """It has all that is committed, and all that an earlier leader may have committed unknown to us, and
        nothing that is known to be deleted. It fetches now, or would have nothing to fetch: the high
        watermark does not wait for the dead.
        """
        return (
            replica not in self.isr
            and follower.end >= self.high_watermark
            and follower.end >= self.start_offset
            and follower.log_start >= self.deleted_before
            and (follower.fetched_at == now or follower.end >= self._local_end)
            and self.is_eligible(replica, follower)
        )

    def _adjust(self, now: Instant) -> list[Order]:
        """Propose the in-sync set that there should be, unless the controller has not answered yet."""
        if self.proposed is not None or now < self._proposes_at:
            return []
        isr = set(self.isr)
        for replica, follower in self.followers.items():
            if replica in isr:
                if not follower.is_caught_up(now, self._local_end, self._lag_seconds):
                    isr.discard(replica)
            elif self._may_join(now, replica, follower):
                isr.add(replica)
        if self._resigns and len(isr) > 1:
            isr.discard(self.id)
        return [] if isr == self.isr else [self._propose(now, frozenset(isr))]

    def _propose(self, now: Instant, isr: frozenset[BrokerId]) -> ProposeIsr:
        self.proposed = isr
        self._count(now)
        return ProposeIsr(
            self.partition_epoch, tuple((replica, self._broker_epoch(replica)) for replica in sorted(isr))
        )

    def _broker_epoch(self, replica: BrokerId) -> int:
        if replica == self.id:
            return self._live.get(replica, NO_BROKER_EPOCH)
        return self.followers[replica].broker_epoch

    # --- high watermark --------------------------------------------------------------------------------

    @property
    def maximal_isr(self) -> frozenset[BrokerId]:
        """Every replica that may be in sync as far as the leader can know."""
        return self.isr if self.proposed is None else self.isr | self.proposed | self._doubtful

    @property
    def has_reached_epoch_start(self) -> bool:
        """Whether everything that an earlier leader may have committed is known to be committed. Before, the
        end of the log is not known to clients.
        """
        return self.high_watermark >= self.start_offset

    def lag(self) -> Iterator[tuple[BrokerId, int]]:
        """The records that each follower lacks, of those that have fetched in this epoch."""
        for replica, follower in self.followers.items():
            if follower.end != UNKNOWN:
                yield replica, max(0, self._local_end - follower.end)

    def has_enough(self, min_insync_replicas: int) -> bool:
        return len(self.isr) >= min_insync_replicas

    def _count(self, now: Instant) -> None:
        """Who holds the high watermark back. Besides the in-sync replicas this is a follower that is about to
        join them: under a steady load it would never reach a high watermark that does not wait for it.
        """
        members = self.maximal_isr
        lowest: int | None = None
        for replica, follower in self.followers.items():
            if replica in members or (
                follower.end != UNKNOWN
                and now - follower.caught_up_at <= self._lag_seconds
                and self.is_eligible(replica, follower)
            ):
                lowest = follower.end if lowest is None else min(lowest, follower.end)
        self._lowest_end = lowest
        self._may_rise = len(self.isr) >= self._min_insync_replicas

    def _recount(self, now: Instant) -> list[Order]:
        self._count(now)
        return self._raised(self.local_end_moved(self._local_end))

    def _raised(self, has_risen: bool) -> list[Order]:
        return [RaiseHighWatermark(self.high_watermark)] if has_risen else []

    # --- time, invariants ------------------------------------------------------------------------------

    def deadline(self) -> Instant | None:
        """When a replica that is behind will have been so for too long."""
        moments = [
            Instant(max(follower.caught_up_at, LONG_AGO) + self._lag_seconds)
            for replica, follower in self.followers.items()
            if follower.end < self._local_end and (replica in self.isr or follower.caught_up_at > LONG_AGO)
        ]
        return None if self.proposed is not None else min(moments, default=None)

    def check(self) -> None:
        assert self.id in self.isr, "the leader is in sync with itself"
        assert self.isr <= self.replicas, "in-sync replicas are replicas"
        assert self.followers.keys() == self.replicas - {self.id}
        assert self.high_watermark <= max(self._local_end, self.high_watermark)
