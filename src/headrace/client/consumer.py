"""The blocking consumer by assignment: `assign` offsets, `poll` batches of records.

The decisions are `fetcher.Fetcher`'s; this shell carries its flights to the brokers and opens what comes
back. The next fetch is under way while the caller works on the records of the last one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from headrace.base.time import Instant
from headrace.client.chunks import records_of
from headrace.client.client import Client
from headrace.client.cluster import TopicPartition
from headrace.client.fetcher import READ_UNCOMMITTED, Chunk, Fetcher, Flight
from headrace.client.network import Call, clock
from headrace.client.record import Record
from headrace.client.refresher import Refresher

MAX_WAIT_MS = 500  # Kafka's fetch.max.wait.ms
FETCH_BYTES = 50 * 1024 * 1024  # Kafka's fetch.max.bytes
PARTITION_BYTES = 1024 * 1024  # Kafka's max.partition.fetch.bytes
CHUNKS_AHEAD_MAX = 4  # fetched and not yet read: beyond this nothing more is asked for


class Consumer:
    """Reads assigned partitions; from one thread."""

    def __init__(
        self,
        client: Client,
        *,
        isolation: int = READ_UNCOMMITTED,
        max_wait_ms: int = MAX_WAIT_MS,
        min_bytes: int = 1,
        max_bytes: int = FETCH_BYTES,
        partition_bytes: int = PARTITION_BYTES,
        patience_s: float | None = None,
    ) -> None:
        self.client = client
        self.high_watermarks: dict[TopicPartition, int] = {}
        self._isolation = isolation
        self._fetcher = Fetcher(
            client.dice,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            partition_bytes=partition_bytes,
            isolation=isolation,
            patience_s=client.timeout_s if patience_s is None else patience_s,
        )
        self._refresher = Refresher(client.cluster, client.dice)
        self._chunks: deque[Chunk] = deque()
        self._positions: dict[TopicPartition, int] = {}
        self._opened: Iterator[list[Record]] = iter(())
        self._reading: Chunk | None = None
        self._settled: list[tuple[Flight, Call]] = []
        self._refreshed: list[Call] = []

    def assign(self, offsets: dict[TopicPartition, int]) -> None:
        """Reads these partitions from these offsets, besides those assigned before."""
        for at, offset in offsets.items():
            self._drop(at)
            self._fetcher.assign(at, offset)
            self._positions[at] = offset

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """Stops reading these; what was fetched of them and not returned is dropped."""
        for at in partitions:
            self._drop(at)
            self._fetcher.unassign(at)
            self._positions.pop(at, None)

    def _drop(self, at: TopicPartition) -> None:
        self._chunks = deque(chunk for chunk in self._chunks if chunk.at != at)
        if self._reading is not None and self._reading.at == at:
            self._opened, self._reading = iter(()), None

    @property
    def assignment(self) -> list[TopicPartition]:
        return self._fetcher.assignment

    def position(self, at: TopicPartition) -> int:
        """The offset behind everything that `poll` has returned or passed over, such as the ends of
        transactions.
        """
        return self._positions[at]

    def poll(self, timeout_s: float) -> list[Record]:
        """The next records, all of one batch; empty when none came in that time."""
        until = Instant(clock() + timeout_s)
        while True:
            for found in self._opened:
                assert self._reading is not None
                self._positions[self._reading.at] = found[-1].offset + 1
                return found
            if self._reading is not None:
                self._positions[self._reading.at] = self._reading.next_offset
                self._reading = None
            if self._chunks:
                self._reading = self._chunks.popleft()
                self._turn(Instant(0.0))  # asks for more before we are busy with this
                self._opened = records_of(self._reading, self._isolation)
            elif clock() >= until:
                return []
            else:
                self._turn(until)

    def _turn(self, until: Instant) -> None:
        now = clock()
        cluster = self.client.cluster
        if len(self._chunks) < CHUNKS_AHEAD_MAX:
            for flight in self._fetcher.departures(now, cluster):
                self._launch(flight)
        question = self._refresher.request(now)
        if question is not None:
            self.client.start(question, self._refreshed.append)
        if not self._settled:
            wake_at = min(until, self._fetcher.deadline(now), self._refresher.deadline(), Instant(now + 1.0))
            self.client.network.poll(wake_at)
        while self._refreshed:
            call = self._refreshed.pop()
            self._refresher.settled(clock(), call.result, call.error)
        while self._settled:  # one by one: what raises leaves the others for the next turn
            self._judge(*self._settled.pop(0))

    def _judge(self, flight: Flight, call: Call) -> None:
        now, cluster = clock(), self.client.cluster
        if call.error is not None:
            self._fetcher.failed(now, flight, call.error, cluster)
            return
        for chunk in self._fetcher.answered(now, flight, call.result, cluster):
            self._chunks.append(chunk)
            self.high_watermarks[chunk.at] = chunk.high_watermark

    def _launch(self, flight: Flight) -> None:
        self.client.network.submit(
            self.client.address(flight.broker),
            flight.request,
            timeout_s=self.client.timeout_s + flight.request.max_wait_ms / 1000,
            lane="fetch",
            version_max=flight.version_max,
            then=lambda call: self._settled.append((flight, call)),
        )
