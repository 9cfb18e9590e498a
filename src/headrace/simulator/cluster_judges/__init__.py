"""Judges of a simulated cluster: each compares the node that was just called with the other nodes."""

from headrace.simulator.cluster import ClusterJudge
from headrace.simulator.cluster_judges.appended_batches_are_sound import AppendedBatchesAreSound
from headrace.simulator.cluster_judges.coordinators_are_led import CoordinatorsAreLed
from headrace.simulator.cluster_judges.flushed_is_durable import FlushedIsDurable
from headrace.simulator.cluster_judges.high_watermark_within_isr import HighWatermarkWithinIsr
from headrace.simulator.cluster_judges.metadata_agrees import MetadataAgrees
from headrace.simulator.cluster_judges.one_leader_per_epoch import OneLeaderPerEpoch
from headrace.simulator.cluster_judges.producer_ids_given_once import ProducerIdsGivenOnce
from headrace.simulator.cluster_judges.producer_state_agrees import ProducerStateAgrees
from headrace.simulator.cluster_judges.quorum_keeps_its_promises import (
    CommittedEntriesStay,
    ControllersKnowAll,
    LeadersCommitTheirOwnEpoch,
    OneVotePerEpoch,
)
from headrace.simulator.cluster_judges.replicas_agree import ReplicasAgree
from headrace.simulator.cluster_judges.transactions_end_everywhere import TransactionsEndEverywhere
from headrace.simulator.cluster_judges.truncation_spares_the_committed import TruncationSparesTheCommitted


def cluster_judges() -> list[ClusterJudge]:
    """Those that see a cause before those that see its consequences."""
    return [
        OneVotePerEpoch(),
        OneLeaderPerEpoch(),
        LeadersCommitTheirOwnEpoch(),
        CommittedEntriesStay(),
        ControllersKnowAll(),
        MetadataAgrees(),
        ProducerIdsGivenOnce(),
        AppendedBatchesAreSound(),
        FlushedIsDurable(),
        TruncationSparesTheCommitted(),
        HighWatermarkWithinIsr(),
        ReplicasAgree(),
        ProducerStateAgrees(),
        CoordinatorsAreLed(),
        TransactionsEndEverywhere(),
    ]
