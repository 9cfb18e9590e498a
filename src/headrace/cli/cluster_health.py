"""The state of a cluster as `headrace cluster describe` shows it: what is wrong, and how bad that is.

The counts of partitions have the meaning that they have in Kafka's tools and metrics. Nothing here talks to
a broker.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.cli.terminal import count_text
from headrace.client.admin.cluster import Broker, Quorum, QuorumReplica
from headrace.client.admin.replicas import LogDirectory
from headrace.client.admin.topics import PartitionDescription, TopicDescription

# A voter fetches at least twice in this time, also when there is nothing new.
VOTER_SILENCE_MS = 3_000

HEALTHY, DEGRADED, FAILING = "healthy", "degraded", "failing"

OFFLINE, UNDER_MIN_ISR, AT_MIN_ISR, UNDER_REPLICATED = (
    "offline",
    "under min ISR",
    "at min ISR",
    "under-replicated",
)


class PartitionHealth(NamedTuple):
    """A partition beside the number of in-sync replicas that its topic asks for."""

    topic: str
    described: PartitionDescription
    min_isr: int  # at most the number of replicas
    is_offline: bool  # nobody leads it, or a broker that is not there
    is_under_replicated: bool

    @property
    def is_under_min_isr(self) -> bool:
        """acks=all writes are refused."""
        return len(self.described.isr) < self.min_isr

    @property
    def is_at_min_isr(self) -> bool:
        """acks=all writes are refused after the loss of one more replica."""
        return len(self.described.isr) == self.min_isr

    @property
    def states(self) -> list[str]:
        held = {
            OFFLINE: self.is_offline,
            UNDER_MIN_ISR: self.is_under_min_isr,
            AT_MIN_ISR: self.is_at_min_isr,
            UNDER_REPLICATED: self.is_under_replicated,
        }
        return [name for name, is_held in held.items() if is_held]

    @property
    def needs_attention(self) -> bool:
        """A topic with as many replicas as its minimum is always at it."""
        return self.is_offline or self.is_under_min_isr or self.is_under_replicated


@dataclass(slots=True)
class ClusterHealth:
    cluster_id: str
    controller_id: int
    quorum: Quorum | None  # None: no leader answered
    brokers: list[Broker]  # also fenced ones
    partitions: list[PartitionHealth]
    directories: list[LogDirectory] = field(default_factory=list)
    silent_brokers: set[int] = field(default_factory=set)  # not fenced, but they do not answer

    def led_by(self, broker_id: int) -> int:
        return sum(one.described.leader == broker_id for one in self.partitions)

    def replicas_of(self, broker_id: int) -> int:
        return sum(broker_id in one.described.replicas for one in self.partitions)

    def state_of(self, broker: Broker) -> str:
        if broker.is_fenced:
            return "fenced"
        return "no answer" if broker.broker_id in self.silent_brokers else "online"

    def count(self, state: str) -> int:
        return sum(state in one.states for one in self.partitions)

    # --- the verdict ----------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        if any(self._failures()):
            return FAILING
        return DEGRADED if any(self._weaknesses()) else HEALTHY

    @property
    def verdict(self) -> str:
        """One line: what is wrong, the worst first, or that nothing is."""
        found = [*self._failures(), *self._weaknesses()]
        if found:
            return "; ".join(found)
        brokers, partitions = len(self.brokers), len(self.partitions)
        return f"{count_text(brokers, 'broker')}, {count_text(partitions, 'partition')}, all replicas in sync"

    def _failures(self) -> Iterator[str]:
        """What somebody cannot do now."""
        if self.quorum is None:
            yield "no leader of the quorum answers, so topics and leaders cannot change"
        if offline := self.count(OFFLINE):
            yield f"{self._share(offline)} without a leader"
        if under := self.count(UNDER_MIN_ISR):
            yield f"{self._share(under)} under min ISR (acks=all writes are refused)"
        for directory in self.directories:
            if directory.error is not None:
                yield f"log directory {directory.path} of broker {directory.broker_id} is offline"

    def _weaknesses(self) -> Iterator[str]:
        """What the next failure may turn into one of the others."""
        if under := self.count(UNDER_REPLICATED):
            yield f"{self._share(under)} under-replicated"
        fenced = [str(broker.broker_id) for broker in self.brokers if broker.is_fenced]
        if fenced:
            yield f"{_named('broker', fenced)} fenced (stopped, or out of touch with the controller)"
        if self.silent_brokers:
            yield f"no answer from {_named('broker', map(str, sorted(self.silent_brokers)), verb=False)}"
        silent = self.silent_voters()
        if behind := [str(one.replica_id) for one in silent if not self.has_new_directory(one)]:
            yield f"{_named('voter', behind)} not following the quorum's leader"
        if replaced := [str(one.replica_id) for one in silent if self.has_new_directory(one)]:
            yield f"{_named('voter', replaced, verb=False)} cannot vote: the metadata directory is new"

    def silent_voters(self) -> list[QuorumReplica]:
        if self.quorum is None:
            return []
        leader = next((one for one in self.quorum.voters if one.replica_id == self.quorum.leader_id), None)
        if leader is None or leader.last_fetch_ms is None:
            return []  # a broker that does not tell times
        since_ms = leader.last_fetch_ms - VOTER_SILENCE_MS
        return [
            one for one in self.quorum.voters if one.last_fetch_ms is None or one.last_fetch_ms < since_ms
        ]

    def has_new_directory(self, voter: QuorumReplica) -> bool:
        """The node follows, but not with the directory that the quorum knows: its disk was replaced."""
        assert self.quorum is not None
        since = voter.last_fetch_ms or 0
        return any(
            one.replica_id == voter.replica_id and (one.last_fetch_ms or 0) > since
            for one in self.quorum.observers
        )

    def lag(self, replica: QuorumReplica) -> int:
        """Records that the leader has and the replica does not."""
        assert self.quorum is not None
        ends = {one.replica_id: one.log_end_offset for one in self.quorum.voters}
        return ends.get(self.quorum.leader_id, self.quorum.high_watermark) - replica.log_end_offset

    def _share(self, count: int) -> str:
        total = len(self.partitions)
        verb = "is" if total == 1 else "are"
        return f"{count} of {count_text(total, 'partition')} {verb}"


def _named(noun: str, ids: Iterable[str], *, verb: bool = True) -> str:
    told = list(ids)
    text = f"{noun} {told[0]}" if len(told) == 1 else f"{noun}s {', '.join(told)}"
    if verb:
        text += " is" if len(told) == 1 else " are"
    return text


def health_of_partitions(
    topics: Iterable[TopicDescription],
    min_isr: Mapping[str, int],
    live: Iterable[int],
    adding: Mapping[tuple[str, int], int],
) -> list[PartitionHealth]:
    """`live` are the brokers that are not fenced. `adding` has the replicas that a reassignment adds: they
    are not missing yet.
    """
    brokers = set(live)
    return [
        PartitionHealth(
            topic.name,
            one,
            min(min_isr.get(topic.name, 1), len(one.replicas)),
            is_offline=one.leader not in brokers,
            is_under_replicated=len(one.isr) < len(one.replicas) - adding.get((topic.name, one.partition), 0),
        )
        for topic in topics
        for one in topic.partitions
    ]
