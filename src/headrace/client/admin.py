"""Questions and orders about topics, configs, offsets and brokers; blocking, one call after the other.

Every method raises a KafkaError that names the topic, key or broker it is about. Answers are plain values.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from headrace.client.client import Client
from headrace.client.cluster import Address, Topic, TopicPartition
from headrace.client.errors import KafkaError
from headrace.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from headrace.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.protocol.messages.describe_cluster import DescribeClusterRequest
from headrace.protocol.messages.describe_log_dirs import DescribeLogDirsRequest

FEWEST_TIMEOUT_MS = 1000


class Broker(NamedTuple):
    broker_id: int
    address: Address
    rack: str | None


class ClusterDescription(NamedTuple):
    cluster_id: str
    controller_id: int
    brokers: list[Broker]


class LogDirectory(NamedTuple):
    """One data directory of one broker; sizes in bytes, -1 where the broker does not say."""

    broker_id: int
    path: str
    error: KafkaError | None
    total_bytes: int
    usable_bytes: int
    partition_bytes: dict[TopicPartition, int]


class Admin:
    """Topics and brokers."""

    def __init__(self, client: Client) -> None:
        self.client = client

    @property
    def _timeout_ms(self) -> int:
        return max(FEWEST_TIMEOUT_MS, round(self.client.timeout_s * 1000))

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """-1 leaves a number to the broker's setting. Returns when the topic is known to the cluster."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        request = CreateTopicsRequest(
            topics=[topic], timeout_ms=self._timeout_ms, validate_only=validate_only
        )
        self._order(request, "topics", f"creating topic {name!r}", f"topic {name!r}")
        if not validate_only:
            self.client.topic(name, is_expected=True)

    def delete_topic(self, name: str) -> None:
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=self._timeout_ms
        )
        self._order(request, "responses", f"deleting topic {name!r}", f"topic {name!r}")

    def grow_topic(self, name: str, partitions: int) -> None:
        """Raises the number of partitions."""
        topic = CreatePartitionsTopic(name=name, count=partitions, assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=self._timeout_ms)
        self._order(request, "results", f"adding partitions to topic {name!r}", f"topic {name!r}")

    def _order(self, request: Any, results: str, what: str, subject: str) -> None:
        """Sends a change of the cluster whose answer has one result per topic."""

        def check(answer: Any) -> None:
            for result in getattr(answer, results):
                if result.error_code:
                    raise KafkaError(
                        result.error_code, getattr(result, "error_message", None), subject=subject
                    )

        if not self.client.cluster.brokers:
            self.client.contact()
        self.client.call(request, what=what, broker=self.client.controller, check=check)

    def topics(self) -> list[Topic]:
        """All topics, by name."""
        self.client.refresh(None)
        return sorted(self.client.cluster.topics.values(), key=lambda topic: topic.name)

    def cluster(self) -> ClusterDescription:
        def check(answer: Any) -> None:
            if answer.error_code:
                raise KafkaError(answer.error_code, answer.error_message, subject="the cluster")

        answer = self.client.call(DescribeClusterRequest(), what="describing the cluster", check=check)
        brokers = [
            Broker(told.broker_id, Address(told.host, told.port), told.rack)
            for told in sorted(answer.brokers, key=lambda told: told.broker_id)
        ]
        return ClusterDescription(answer.cluster_id, answer.controller_id, brokers)

    def log_directories(self, brokers: Iterable[int] | None = None) -> list[LogDirectory]:
        """What lies where, on those brokers (None: on all)."""
        self.client.contact()
        asked = sorted(self.client.cluster.brokers) if brokers is None else brokers
        return [directory for broker in asked for directory in self._log_directories_of(broker)]

    def _log_directories_of(self, broker: int) -> list[LogDirectory]:
        def check(answer: Any) -> None:
            if answer.error_code:
                raise KafkaError(answer.error_code, subject=f"broker {broker}")

        answer = self.client.call(
            DescribeLogDirsRequest(topics=None),
            what=f"asking broker {broker} for its log directories",
            broker=lambda: broker,
            check=check,
        )
        return [
            LogDirectory(
                broker,
                told.log_dir,
                KafkaError(told.error_code, subject=told.log_dir) if told.error_code else None,
                told.total_bytes,
                told.usable_bytes,
                {
                    TopicPartition(topic.name, partition.partition_index): partition.partition_size
                    for topic in told.topics
                    for partition in topic.partitions
                },
            )
            for told in answer.results
        ]
