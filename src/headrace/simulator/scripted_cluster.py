"""A cluster that the caller plays for one client session: it sees every request and writes every answer.

Only lookups are answered here: Metadata, from the leaders that the caller sets, and FindCoordinator, if the
caller names coordinators. Time stands still until the caller moves it.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from headrace.base.time import NEVER, Instant
from headrace.client.cluster import Address, TopicPartition
from headrace.client.network.connection import ByVersion
from headrace.client.session import Answer, Outgoing
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from headrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.simulator.frames import newest_request
from headrace.simulator.programs.shell import Driven

R = TypeVar("R")

BROKERS = (1, 2)
TURNS_MAX = 50  # until a request has come that the caller waits for


def address_of(broker: int) -> Address:
    return Address(f"broker{broker}", 9092)


class ScriptedCluster:
    """Invariant: a request of the session is in `open` until the caller takes it, unless it was a lookup."""

    def __init__(
        self,
        session: Driven,
        leaders: dict[TopicPartition, int],
        *,
        coordinators: dict[str, int] | None = None,
        coordinator_version: int = 6,
        after_turn: Callable[[], None] = lambda: None,
    ) -> None:
        self.session = session
        self.now = Instant(0.0)
        self.leaders = leaders  # the broker of each partition; -1: it has none
        self.epochs: dict[TopicPartition, int] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.topic_errors: dict[str, int] = {}
        self.controller = 2
        self.coordinators = coordinators  # by key; None: the caller answers FindCoordinator, too
        self.describes_topics = True  # else the caller answers Metadata
        self.lookups: list[str] = []  # what was looked up, in words
        self.open: list[Outgoing] = []
        self._coordinator_version = coordinator_version
        self._after_turn = after_turn

    # --- requests and answers ------------------------------------------------------------------------------

    def turn(self) -> list[Outgoing]:
        """What the session sends now, after the lookups that it needs were answered."""
        leaving: list[Outgoing] = []
        while posted := self.session.requests(self.now):
            for outgoing in posted:
                answer = self._looked_up(outgoing)
                if answer is None:
                    leaving.append(outgoing)
                else:
                    self.session.answered(self.now, outgoing.ticket, answer)
        self.open += leaving
        self._after_turn()
        return leaving

    def next(self, kind: type[R], version: int | None = None) -> tuple[R, Outgoing]:
        """The next request of this kind, as late as it may come."""
        for _ in range(TURNS_MAX):
            self.turn()
            for outgoing in self.open:
                request = request_of(outgoing, version)
                if isinstance(request, kind):
                    self.open.remove(outgoing)
                    return request, outgoing
            assert self.session.deadline() < NEVER, f"nothing more comes by itself, open is {self.open}"
            self.now = max(self.now, self.session.deadline())
        raise AssertionError(f"no {kind.__name__} comes, only {self.open}")

    def answer(self, ticket: int, answer: Answer) -> None:
        self.open = [outgoing for outgoing in self.open if outgoing.ticket != ticket]
        self.session.answered(self.now, ticket, answer)

    def advance(self, seconds: float) -> None:
        self.now = Instant(self.now + seconds)

    # --- lookups -------------------------------------------------------------------------------------------

    def _looked_up(self, outgoing: Outgoing) -> Answer | None:
        request: Any = request_of(outgoing)
        if isinstance(request, MetadataRequest) and request.topics is not None and self.describes_topics:
            names = [topic.name or "" for topic in request.topics]
            self.lookups.append(f"topics {' '.join(names)}" if names else "brokers")
            return self.metadata(*names)
        if isinstance(request, FindCoordinatorRequest) and self.coordinators is not None:
            request = request_of(outgoing, self._coordinator_version)
            keys = request.coordinator_keys or [request.key]
            self.lookups.append(f"coordinators {' '.join(keys)}")
            return self._found([self._coordinator(key, self.coordinators.get(key)) for key in keys])
        return None

    def _found(self, told: list[Coordinator]) -> FindCoordinatorResponse:
        if self._coordinator_version >= 4:
            return FindCoordinatorResponse(coordinators=told)
        (one,) = told
        return FindCoordinatorResponse(
            node_id=one.node_id, host=one.host, port=one.port, error_code=one.error_code
        )

    @staticmethod
    def _coordinator(key: str, broker: int | None) -> Coordinator:
        if broker is None:
            return Coordinator(key=key, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        address = address_of(broker)
        return Coordinator(key=key, node_id=broker, host=address.host, port=address.port)

    def metadata(self, *names: str) -> MetadataResponse:
        brokers = sorted({*BROKERS, *self.leaders.values()} - {-1})
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=broker, host=address_of(broker).host, port=9092)
                for broker in brokers
            ],
            controller_id=self.controller,
            topics=[self.topic(name) for name in names],
        )

    def topic(self, name: str) -> MetadataResponseTopic:
        partitions = [
            MetadataResponsePartition(
                partition_index=at.partition,
                leader_id=leader,
                leader_epoch=self.epochs.get(at, 0),
                replica_nodes=list(BROKERS),
                isr_nodes=[1],
            )
            for at, leader in sorted(self.leaders.items())
            if at.topic == name
        ]
        error = self.topic_errors.get(name, 0 if partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if error:
            return MetadataResponseTopic(name=name, error_code=error)
        topic_id = self.topic_ids.get(name, name[:16].encode().ljust(16, b"-"))
        return MetadataResponseTopic(name=name, topic_id=topic_id, partitions=partitions)


def request_of(outgoing: Outgoing, version: int | None = None) -> Any:
    """The request itself, in this version or in the newest that the session allows."""
    if version is None:
        return newest_request(outgoing)[0]
    question = outgoing.question
    return question.make(version) if isinstance(question, ByVersion) else question
