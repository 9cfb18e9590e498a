"""Planted bugs of a cluster: each changes the product in one place for as long as its context lasts, and a
judge of the simulator has to object in one of the plays, with nothing else changed.

`seed` is one with which that was seen, in `play`. A change of the product moves it: `harness.planted_bugs`
finds another one.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from harness import quorum_bugs
from headrace.base.ids import BrokerId, Offset
from headrace.base.time import Instant, Now
from headrace.machines.metadata.image import BrokerState
from headrace.machines.raft.leader import Leader
from headrace.machines.raft.quorum_state import NO_DIRECTORY, NOBODY, QuorumState
from headrace.machines.replication import follower as following_machine
from headrace.machines.replication.follower import PartitionFollower
from headrace.machines.replication.leader import UNKNOWN, PartitionLeader, Progress, ReplicaFetched
from headrace.machines.replication.lineage import Divergence, Lineage, find_replica_divergence
from headrace.node import produce_fast_path, quorum_driver, replica_feeds, replica_moves
from headrace.node.broker_lifecycle import BrokerLifecycle
from headrace.node.commit_queue import CommitQueue
from headrace.node.coordinators.coordinator import Coordinator
from headrace.node.coordinators.markers import MarkersUnderWay
from headrace.node.following import Following
from headrace.node.handlers import produce
from headrace.node.handlers.allocate_producer_ids import AllocateProducerIds
from headrace.node.metadata_log import MetadataLog
from headrace.node.metadata_replies import CommittedReply
from headrace.node.partition import Partition
from headrace.node.previous_epoch import PreviousEpoch
from headrace.node.replica_feeds import ReplicaFeeds
from headrace.node.replica_fetchers import ReplicaFetchers
from headrace.node.voter_dials import VoterDials
from headrace.protocol.errors import ErrorCode
from headrace.records.batch import read_header
from headrace.storage import damage, moving, replicating
from headrace.storage.damage import Walk
from headrace.storage.disk import Disk, write_atomically
from headrace.storage.file_list import FileList
from headrace.storage.flushing import Flushed, FlushJob
from headrace.storage.log import PartitionLog
from headrace.storage.log_state import LogState
from headrace.storage.partition_producers import PartitionProducers
from headrace.storage.producer_state import ProducerState

QUORUM = "quorum"
CLUSTER = "cluster"
COORDINATORS = "cluster_coordinators"


@dataclass(frozen=True)
class Bug:
    name: str
    plant: Callable[[], AbstractContextManager[Any]]
    play: str
    seed: int  # known to show it
    judges: tuple[str, ...]  # who catches it
    profile: str = ""  # of the faults; "": that of the seed


BUGS: dict[str, Bug] = {}


def bug(
    seed: int, *judges: str, play: str = CLUSTER, profile: str = ""
) -> Callable[[Callable[[], Iterator[None]]], Callable[[], AbstractContextManager[None]]]:
    def planted(make: Callable[[], Iterator[None]]) -> Callable[[], AbstractContextManager[None]]:
        made = contextmanager(make)
        BUGS[make.__name__] = Bug(make.__name__, made, play, seed, judges, profile)
        return made

    return planted


# --- the quorum -------------------------------------------------------------------------------------------


@contextmanager
def voter_forgets_its_vote() -> Iterator[None]:
    """The epoch is kept: a node whose file has an earlier one than its log, or none, does not start."""

    def run(self: quorum_driver.PersistJob, disk: Disk) -> None:
        state = QuorumState.from_bytes(self._data)
        forgotten = replace(state, voted_id=NOBODY, voted_directory_id=NO_DIRECTORY)
        write_atomically(disk, quorum_driver.QUORUM_STATE, forgotten.to_bytes())

    with patch.object(quorum_driver.PersistJob, "run", run):
        yield


# In a whole cluster, two candidates of one epoch that ask the same voter, before and after it died, are rare:
# the play of the quorum alone has them in some runs. For a broker's file see tests/unit/node/cluster.
@bug(1, "one_vote_per_epoch", play=QUORUM)
def vote_not_durable() -> Iterator[None]:
    with quorum_bugs.vote_not_durable():
        yield


@bug(5, "committed_entries_stay")
def vote_for_an_older_log() -> Iterator[None]:
    with quorum_bugs.vote_for_an_older_log():
        yield


@bug(3, "leaders_commit_their_own_epoch")
def old_epoch_entry_committed_by_count() -> Iterator[None]:
    with quorum_bugs.old_epoch_committed_by_count():
        yield


@bug(3, "committed_entries_stay")
def fetch_before_fsync() -> Iterator[None]:
    with quorum_bugs.fetch_before_fsync():
        yield


@bug(3, "controllers_know_all")
def answer_before_an_entry_of_the_own_epoch() -> Iterator[None]:
    with (
        patch.object(Leader, "may_decide", property(lambda self: True)),
        patch.object(Leader, "is_active", property(lambda self: True)),
    ):
        yield


@bug(6, "metadata_agrees")
def uncommitted_records_applied() -> Iterator[None]:
    append = MetadataLog._append_fetched

    def append_and_apply(self: MetadataLog, now: Now, data: bytes) -> None:
        append(self, now, data)
        self._commit(now, self.end_offset)

    with patch.object(MetadataLog, "_append_fetched", append_and_apply):
        yield


@bug(36, "producer_ids_given_once")
def producer_ids_from_two_controllers() -> Iterator[None]:
    """The block is told before it is committed: the next controller gives it once more."""
    decide = AllocateProducerIds.decide

    def decide_at_once(self: AllocateProducerIds, now: Now, body: Any) -> Any:
        return decide(self, now, body)[0], 0

    with patch.object(AllocateProducerIds, "decide", decide_at_once):
        yield


@bug(11, "admin_is_told_the_truth", "admin_errors_make_sense")
def change_told_before_it_is_committed() -> Iterator[None]:
    """A client hears of it, and the next controller may never."""
    wait = CommittedReply.reply

    def reply_at_once(self: CommittedReply, now: Now, *, is_expired: bool) -> Any:
        if not self._is_for_all:
            return wait(self, now, is_expired=is_expired)
        return self._reply(now) if callable(self._reply) else self._reply

    with patch.object(CommittedReply, "reply", reply_at_once):
        yield


# --- followers --------------------------------------------------------------------------------------------


@bug(5, "truncation_spares_the_committed", "replicas_agree_below_high_watermark")
def truncation_to_the_high_watermark() -> Iterator[None]:
    """What KIP-101 repaired."""
    follow = ReplicaFetchers.follow

    def truncate_and_follow(self: ReplicaFetchers, now: Now, partition: Partition) -> None:
        if partition.log is not None and not partition.is_offline and not partition.is_deleted:
            partition.log.truncate_to(partition.high_watermark)
        follow(self, now, partition)

    with patch.object(ReplicaFetchers, "follow", truncate_and_follow):
        yield


@bug(33, "progress_after_healing")
def truncation_without_lineage() -> Iterator[None]:
    """What KIP-279 repaired: the leader's answer is taken, though the follower lacks its epoch."""

    def truncation_offset(follower: Lineage, log_end_offset: int, leader: Divergence) -> Offset:
        return Offset(min(leader.end_offset, log_end_offset))

    with patch.object(following_machine, "truncation_offset", truncation_offset):
        yield


@bug(1, "progress_after_healing", "appended_batches_are_sound", "replicas_agree_below_high_watermark")
def epoch_assigned_by_a_follower() -> Iterator[None]:
    follow = ReplicaFetchers.follow

    def assign_and_follow(self: ReplicaFetchers, now: Now, partition: Partition) -> None:
        follow(self, now, partition)
        if partition.follower is not None and partition.log is not None:
            partition.log.assign_epoch(partition.leader_epoch)

    def last_epoch(log: LogState) -> int:
        return log.epochs.read().latest  # one that has no record, too

    with (
        patch.object(ReplicaFetchers, "follow", assign_and_follow),
        patch.object(replicating, "last_record_epoch", last_epoch),
        patch.object(PartitionLog, "last_record_epoch", last_epoch),
    ):
        yield


@bug(6, "appended_batches_are_sound")
def batch_of_a_later_epoch_appended() -> Iterator[None]:
    refusal = replicating._refusal

    def trusting(header: Any, end: int, last_epoch: int, leader_epoch: int, *, allows_gaps: bool) -> Any:
        return refusal(
            header, end, last_epoch, max(leader_epoch, header.leader_epoch), allows_gaps=allows_gaps
        )

    with patch.object(replicating, "_refusal", trusting):
        yield


@bug(16, "appended_batches_are_sound")
def corrupt_batch_replicated() -> Iterator[None]:
    with patch.object(replicating, "check_crc", read_header):
        yield


@bug(87, "truncation_spares_the_committed", "acked_never_lost", "offsets_keep_their_value")
def follower_fetches_before_its_flush() -> Iterator[None]:
    """With flush.messages=1 a fetch says that what came before is flushed. While only one host is lost at a
    time nobody notices.
    """
    begin = PartitionFollower.__init__

    def begin_unflushed(self: PartitionFollower, *arguments: Any, **more: Any) -> None:
        begin(self, *arguments, **more | {"flushes_each": False})

    with patch.object(PartitionFollower, "__init__", begin_unflushed):
        yield


@bug(3, "producer_state_agrees")
def producer_state_lost_at_truncation() -> Iterator[None]:
    truncate = PartitionProducers.truncate

    def forget(self: PartitionProducers, *arguments: Any, **more: Any) -> None:
        truncate(self, *arguments, **more)
        self.state = ProducerState()

    with patch.object(PartitionProducers, "truncate", forget):
        yield


# --- leaders ----------------------------------------------------------------------------------------------


@bug(2, "high_watermark_within_isr", "truncation_spares_the_committed", "replicas_agree_below_high_watermark")
def high_watermark_over_too_small_an_isr() -> Iterator[None]:
    """A proposed in-sync set counts alone, before the controller has agreed."""
    count = PartitionLeader._count

    def count_proposed(self: PartitionLeader, now: Instant) -> None:
        committed = self.isr
        if self.proposed is not None:
            self.isr = self.proposed | {self.id}
        count(self, now)
        self.isr = committed

    with patch.object(PartitionLeader, "_count", count_proposed):
        yield


@bug(1, "high_watermark_within_isr", "truncation_spares_the_committed")
def isr_joined_too_early() -> Iterator[None]:
    def may_join(self: PartitionLeader, now: Instant, replica: BrokerId, follower: Progress) -> bool:
        return replica not in self.isr and follower.end != UNKNOWN and self.is_eligible(replica, follower)

    with patch.object(PartitionLeader, "_may_join", may_join):
        yield


@bug(40, "truncation_spares_the_committed")
def lost_host_stays_in_the_isr() -> Iterator[None]:
    """It says that it is the run before, though what was only in memory is gone."""

    def told(self: PreviousEpoch, registered: BrokerState | None = None) -> int:
        last = registered or self._known
        return last.epoch if last is not None else -1

    with patch.object(PreviousEpoch, "told", told):
        yield


@bug(26, "high_watermark_within_isr")
def fetch_of_an_earlier_life_counts() -> Iterator[None]:
    """Each fetch is taken for one of the follower's present run, as before KIP-903.

    The run that a fetch names is compared three times: when it arrives, when it is counted, and when the
    follower may join the in-sync set. While one of them is left, a late fetch lets nobody join.
    """
    handle = ReplicaFeeds.handle

    def handle_as_present(self: ReplicaFeeds, request: Any) -> Any:
        state = request.body.replica_state
        known = self._metadata.image.brokers.get(state.replica_id)
        state.replica_epoch = max(state.replica_epoch, known.epoch if known is not None else -1)
        return handle(self, request)

    def is_follower(self: ReplicaFeeds, request: Any) -> bool:
        state = request.body.replica_state
        return state is not None and state.replica_id >= 0 and state.replica_id != self._broker_id

    with (
        patch.object(ReplicaFeeds, "handle", handle_as_present),
        patch.object(ReplicaFeeds, "is_follower", is_follower),
    ):
        yield


@bug(
    12, "high_watermark_within_isr", "truncation_spares_the_committed", "replicas_agree_below_high_watermark"
)
def diverging_fetch_counts() -> Iterator[None]:
    take = ReplicaFeeds._take

    def take_all(self: Any, now: Now, feed: Any, broker_epoch: int, topic_id: bytes, wanted: Any) -> None:
        take(self, now, feed, broker_epoch, topic_id, wanted)
        partition = feed.entry((topic_id, wanted.partition)).partition
        if partition is None or partition.leader is None or partition.log is None:
            return
        log = partition.log
        epoch, offset = wanted.last_fetched_epoch, wanted.fetch_offset
        if epoch >= 0 and find_replica_divergence(log, log.log_start_offset, epoch, offset) is not None:
            end = min(offset, log.log_end_offset)
            fetched = ReplicaFetched(feed.replica, broker_epoch, wanted.current_leader_epoch, end)
            partition.carry_out(now, partition.leader.step(now.mono, fetched))

    with patch.object(ReplicaFeeds, "_take", take_all):
        yield


@bug(78, "offsets_keep_their_value", "acked_never_lost")
def acks_all_answered_by_offset_alone() -> Iterator[None]:
    """Whoever waits for an offset is content when the high watermark reaches it, whoever leads by then.

    Only a leader wakes those who wait: a follower's high watermark would answer nobody, and whoever asks the
    wrong question would not be heard before the replica leads again. So it wakes them here, too.
    """
    step = Following._step

    def outcome(partition: Partition, leader: PartitionLeader | None, end: int) -> ErrorCode | None:
        return ErrorCode.NONE if partition.high_watermark >= end else None

    def step_and_wake(self: Following, *arguments: Any) -> None:
        step(self, *arguments)
        if self.is_current and self.partition._commits is not None:
            self.partition._commits.free(self.high_watermark)

    with (
        patch.object(produce, "commit_outcome", outcome),
        patch.object(produce_fast_path, "commit_outcome", outcome),
        patch.object(CommitQueue, "free_all", lambda self: None),
        patch.object(Following, "_step", step_and_wake),
    ):
        yield


@bug(
    5,
    "high_watermark_within_isr",
    "truncation_spares_the_committed",
    "replicas_agree_below_high_watermark",
)
def high_watermark_of_a_new_leader_at_its_log_end() -> Iterator[None]:
    begin = PartitionLeader.begin

    def begin_at_end(self: PartitionLeader, now: Instant, log_start: int, end: int, committed: int) -> None:
        begin(self, now, log_start, end, max(end, committed))

    with patch.object(PartitionLeader, "begin", begin_at_end):
        yield


@bug(39, "flushed_is_durable", "committed_entries_stay")
def flush_without_a_descriptor_counts() -> Iterator[None]:
    run = FlushJob.run

    def run_or_pretend(self: FlushJob, disk: Disk) -> Flushed:
        try:
            return run(self, disk)
        except OSError as error:
            if error.errno != errno.EMFILE:
                raise
            return Flushed(self.directory, self.generation, self.end_offset, self.snapshots)

    with patch.object(FlushJob, "run", run_or_pretend):
        yield


@bug(3, "progress_after_healing")
def first_batch_beyond_the_limit_is_not_sent() -> Iterator[None]:
    """A follower whose `replica.fetch.max.bytes` are smaller than the next batch gets nothing."""
    answer = replica_feeds.answer_for

    def answer_within(now: Now, entry: Any, bytes_max: int, *, at_least_one: bool) -> Any:
        return answer(now, entry, bytes_max, at_least_one=False)

    with patch.object(replica_feeds, "answer_for", answer_within):
        yield


@bug(75, "deleted_stays_deleted")
def deletion_told_before_followers_know_it() -> Iterator[None]:
    with patch.object(Partition, "lowest_start", lambda self, log: log.log_start_offset):
        yield


@bug(15, "progress_after_healing")
def batch_that_begins_before_the_log_is_refused() -> Iterator[None]:
    """Where records were deleted, the first batch of a log that starts over begins before its start."""
    with patch.object(replicating, "_is_empty", lambda log: False):
        yield


# --- coordinators -----------------------------------------------------------------------------------------


@bug(4, "coordinators_are_led", play=COORDINATORS)
def old_coordinator_goes_on() -> Iterator[None]:
    with patch.object(Coordinator, "no_longer_led", lambda self, now, index: None):
        yield


@bug(6, "transactions_end_everywhere", play=COORDINATORS)
def transaction_complete_before_all_markers() -> Iterator[None]:
    """The leaders of other partitions are asked, and not waited for."""
    expired = MarkersUnderWay.expired

    def ask_and_go_on(self: MarkersUnderWay, now: Now) -> None:
        expired(self, now)
        if self._asked and not self.is_done:
            self._asked.clear()
            self.woken(now)

    with patch.object(MarkersUnderWay, "expired", ask_and_go_on):
        yield


# --- the end ----------------------------------------------------------------------------------------------


@bug(1, "clean_stop_of_all")
def stop_awaits_the_controller_for_ever() -> Iterator[None]:
    """When all stop at once, the controller that a node waits for has ended."""
    with (
        patch.object(BrokerLifecycle, "_hear", lambda self, now: None),
        patch.object(VoterDials, "is_majority_gone", False),
    ):
        yield


# --- files ------------------------------------------------------------------------------------------------

LOSSES = (
    "truncation_spares_the_committed",
    "deleted_stays_deleted",
    "reads_skip_nothing",
    "acked_never_lost",
    "high_watermark_within_isr",
    "replicas_agree",
)


@bug(6, *LOSSES, profile="files")
def missing_segments_not_noticed() -> Iterator[None]:
    """As if there were no lists of files."""
    with patch.object(FileList, "read", lambda self: set()):
        yield


# --- large batches, moves ---------------------------------------------------------------------------------


@bug(8, "nothing_is_raised", "offsets_keep_their_value", "replicas_agree", profile="pieces")
def batches_inside_a_torn_batch_count() -> Iterator[None]:
    """A whole batch behind a torn one is taken for the next batch of the log."""

    def is_cut_short(self: Walk, position: int, offset: int, *, is_dense: bool) -> bool:
        return damage.is_cut_short(self._file.read(position, self._end - position), offset)

    with patch.object(Walk, "is_cut_short", is_cut_short):
        yield


@bug(2, *LOSSES, "progress_after_healing", profile="moves")
def copy_without_the_last_segment() -> Iterator[None]:
    complete = moving.complete

    def incomplete(source: Disk, old: str, target: Disk, new: str, copied: Iterable[str]) -> None:
        complete(source, old, target, new, copied)
        logs = [name for name in target.list(new) if name.endswith(".log")]
        for name in logs[1:][-2:]:
            target.remove(f"{new}/{name}")

    with patch.object(replica_moves, "complete", incomplete):
        yield
