"""Judges: each checks one promise. It gets every fact in order, and raises at the first that breaks it."""

from headrace.simulator.history import Judge
from headrace.simulator.judges.acked_after_fsync import AckedAfterFsync
from headrace.simulator.judges.acked_never_lost import AckedNeverLost
from headrace.simulator.judges.admin_errors_make_sense import AdminErrorsMakeSense
from headrace.simulator.judges.answers_in_request_order import AnswersInRequestOrder
from headrace.simulator.judges.committed_offsets_never_go_back import CommittedOffsetsNeverGoBack
from headrace.simulator.judges.coordinators_rebuilt import CoordinatorsRebuilt
from headrace.simulator.judges.coordinators_sound import CoordinatorsSound
from headrace.simulator.judges.copied_exactly_once import CopiedExactlyOnce
from headrace.simulator.judges.deliveries_told_once import DeliveriesToldOnce
from headrace.simulator.judges.earliest_never_falls import EarliestNeverFalls
from headrace.simulator.judges.fenced_members_cannot_commit import FencedMembersCannotCommit
from headrace.simulator.judges.full_disk_costs_no_directory import FullDiskCostsNoDirectory
from headrace.simulator.judges.handled_at_least_once import HandledAtLeastOnce
from headrace.simulator.judges.high_watermark_follows_the_log import HighWatermarkFollowsTheLog
from headrace.simulator.judges.high_watermark_monotonic import HighWatermarkMonotonic
from headrace.simulator.judges.latest_not_below_acked import LatestNotBelowAcked
from headrace.simulator.judges.memory_bounded import MemoryBounded
from headrace.simulator.judges.metadata_remembered import MetadataRemembered
from headrace.simulator.judges.metadata_replayed import MetadataReplayed
from headrace.simulator.judges.no_duplicates import NoDuplicates
from headrace.simulator.judges.no_uncommitted_reads import NoUncommittedReads
from headrace.simulator.judges.offsets_keep_their_value import OffsetsKeepTheirValue
from headrace.simulator.judges.offsets_stay_with_their_topic import OffsetsStayWithTheirTopic
from headrace.simulator.judges.one_holder_per_partition import OneHolderPerPartition
from headrace.simulator.judges.one_owner_per_generation import OneOwnerPerGeneration
from headrace.simulator.judges.open_records_stay_unstable import OpenRecordsStayUnstable
from headrace.simulator.judges.order_per_producer import OrderPerProducer
from headrace.simulator.judges.polls_follow_each_other import PollsFollowEachOther
from headrace.simulator.judges.reads_skip_nothing import ReadsSkipNothing
from headrace.simulator.judges.refused_stays_refused import RefusedStaysRefused
from headrace.simulator.judges.stable_offset_never_stuck import StableOffsetNeverStuck
from headrace.simulator.judges.transactions_all_or_nothing import TransactionsAllOrNothing
from headrace.simulator.judges.whole_batches_below_high_watermark import WholeBatchesBelowHighWatermark


def all_judges() -> list[Judge]:
    """In the order in which they are asked: those who see a cause before those who see its consequences."""
    return [
        MemoryBounded(),
        FullDiskCostsNoDirectory(),
        AnswersInRequestOrder(),
        RefusedStaysRefused(),
        AckedAfterFsync(),
        WholeBatchesBelowHighWatermark(),
        HighWatermarkMonotonic(),
        HighWatermarkFollowsTheLog(),
        EarliestNeverFalls(),
        LatestNotBelowAcked(),
        OffsetsKeepTheirValue(),
        DeliveriesToldOnce(),
        NoDuplicates(),
        OrderPerProducer(),
        AckedNeverLost(),
        MetadataRemembered(),
        MetadataReplayed(),
        CoordinatorsRebuilt(),
        CoordinatorsSound(),
        OneHolderPerPartition(),
        OneOwnerPerGeneration(),
        FencedMembersCannotCommit(),
        PollsFollowEachOther(),
        HandledAtLeastOnce(),
        ReadsSkipNothing(),
        OffsetsStayWithTheirTopic(),
        CommittedOffsetsNeverGoBack(),
        OpenRecordsStayUnstable(),
        NoUncommittedReads(),
        TransactionsAllOrNothing(),
        CopiedExactlyOnce(),
        StableOffsetNeverStuck(),
    ]


def judges_of_clients() -> list[Judge]:
    """Those that need to know only what clients saw, for runs with several nodes: no loss of a host excuses
    anything there.
    """
    return [
        MemoryBounded(),
        AnswersInRequestOrder(),
        OffsetsKeepTheirValue(),
        DeliveriesToldOnce(),
        NoDuplicates(),
        OrderPerProducer(),
        AckedNeverLost(),
        OneOwnerPerGeneration(),
        PollsFollowEachOther(),
        HandledAtLeastOnce(),
        ReadsSkipNothing(),
        NoUncommittedReads(),
        TransactionsAllOrNothing(),
        CopiedExactlyOnce(),
        StableOffsetNeverStuck(),
        CoordinatorsSound(),
        AdminErrorsMakeSense(),
    ]
