"""The producer of a command, and its options: a record that cannot be delivered ends the command."""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar

import click

from headrace.cli.client_settings import settings_of
from headrace.client.cluster import TopicPartition
from headrace.client.producer._batch import Delivery, PartitionQueue
from headrace.client.threads.producer import Producer
from headrace.records.compression import CODEC_NAMES
from headrace.records.json_lines import Header

BATCH_BYTES = 256 * 1024
# A record of a command is as large as its file, and the broker says what is too large.
RECORD_BYTES_MAX = 128 * 1024 * 1024
# How long a topic that was just created may take until every broker knows it.
CREATION_S = 5.0


F = TypeVar("F", bound=Callable[..., Any])


def acks_option(*choices: str) -> Callable[[F], F]:
    return click.option(
        "--acks",
        type=click.Choice(choices),
        default="all",
        show_default=True,
        help="Replicas that must have a record before it is acknowledged.",
    )


def compression_option(function: F) -> F:
    return click.option(
        "--compression",
        "-z",
        type=click.Choice(list(CODEC_NAMES)),
        default="none",
        show_default=True,
        help="Codec of the batches.",
    )(function)


class Writer:
    """`send` and `flush` raise the error of any record before."""

    def __init__(
        self,
        bootstrap: str,
        timeout_s: float,
        *,
        acks: str = "all",
        compression: str = "none",
        batch_bytes: int = BATCH_BYTES,
        linger_ms: int = 5,
    ) -> None:
        timeout_ms = max(round(timeout_s * 1000), 2 * linger_ms)
        self._acknowledged: dict[PartitionQueue, Delivery] = {}  # the last one of each partition
        self._timeout_s = timeout_s
        self._error: Exception | None = None
        settings = settings_of(
            "producer",
            bootstrap,
            acks=acks,
            compression_type=compression,
            batch_size=batch_bytes,
            headrace_batch_size_max=batch_bytes,
            buffer_memory=RECORD_BYTES_MAX,
            delivery_timeout_ms=timeout_ms,
            linger_ms=linger_ms,
            max_block_ms=timeout_ms,
            max_request_size=RECORD_BYTES_MAX,
            request_timeout_ms=timeout_ms - linger_ms,
        )
        self._producer = Producer(settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._producer.close(0 if error is not None else None)
        if error is None:
            self._raise_error()

    def find(self, topic: str) -> None:
        """Raises if the topic does not appear soon: one that was just created may take a moment."""
        self._producer.partitions_for(topic, min(self._timeout_s, CREATION_S))

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: tuple[Header, ...] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        self._raise_error()
        delivery = self._producer.send(
            topic, value, key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
        )
        delivery.when_done(self._settled)

    @property
    def end_offsets(self) -> dict[TopicPartition, int]:
        """Behind the last acknowledged record of each partition."""
        lying = [delivery.result() for delivery in self._acknowledged.values()]
        return {TopicPartition(lies.topic, lies.partition): lies.offset + 1 for lies in lying}

    def flush(self) -> None:
        """Returns when every record is acknowledged."""
        self._producer.flush()
        self._raise_error()

    def _settled(self, delivery: Delivery) -> None:
        if delivery.error is not None:
            self._error = self._error or delivery.error
            return
        self._acknowledged[delivery.batch.queue] = delivery

    def _raise_error(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error
