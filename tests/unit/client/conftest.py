"""A scripted broker: answers as bytes, for connections that have no socket."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from headrace.base.time import Instant
from headrace.client.cluster import Cluster
from headrace.client.network.connection import Connection
from headrace.protocol.api import response_codec
from headrace.protocol.framing import response_bytes
from headrace.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from headrace.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ORDERS_ID = bytes(range(16))


class Script:
    """What a broker would say."""

    @staticmethod
    def answer(correlation_id: int, message: Any, version: int) -> bytes:
        codec = response_codec(message.KEY, version)
        return response_bytes(correlation_id, codec.header_version, codec.encode(message))

    def versions(self, correlation_id: int = 0, *, version: int = 4, **offered: tuple[int, int]) -> bytes:
        """ApiVersions with Metadata 0–13 and Produce 0–13, unless told otherwise as api_<key>=(min, max)."""
        ranges = {3: (0, 13), 0: (0, 13), 18: (0, 4)} | {int(k[4:]): v for k, v in offered.items()}
        keys = [ApiVersion(api_key=key, min_version=a, max_version=b) for key, (a, b) in ranges.items()]
        return self.answer(correlation_id, ApiVersionsResponse(api_keys=keys), version)


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def rng() -> random.Random:
    return random.Random(7)


@pytest.fixture
def ready(script: Script) -> Callable[..., Connection]:
    """Makes a connection that has negotiated."""

    def make(*, response_bytes_max: int = 1_000_000, **offered: Any) -> Connection:
        connection = Connection(
            client_id="test", software_version="1.0", response_bytes_max=response_bytes_max
        )
        connection.begin(Instant(5.0))
        connection.take_output()
        assert connection.receive(script.versions(**offered)) == []
        assert connection.is_ready
        return connection

    return make


def metadata(*leaders: int, topic: str = "orders", error_code: int = 0) -> MetadataResponse:
    """Brokers 1 and 2, and one topic whose partitions have these leaders."""
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=n, host=f"b{n}", port=9000 + n) for n in (1, 2)],
        cluster_id="c",
        controller_id=1,
        topics=[
            MetadataResponseTopic(
                error_code=error_code,
                name=topic,
                topic_id=ORDERS_ID,
                partitions=[
                    MetadataResponsePartition(
                        partition_index=index,
                        leader_id=leader,
                        leader_epoch=3,
                        replica_nodes=[1],
                        isr_nodes=[1],
                    )
                    for index, leader in enumerate(leaders)
                ],
            )
        ],
    )


@pytest.fixture
def told() -> Callable[..., MetadataResponse]:
    return metadata


@pytest.fixture
def cluster() -> Cluster:
    """Topic orders with partitions 0 and 1, led by brokers 1 and 2."""
    made = Cluster()
    assert made.update(metadata(1, 2)) == {}
    return made
