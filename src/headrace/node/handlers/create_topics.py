"""CreateTopics, key 19, versions 2–7. Each topic is granted or refused by itself; the answer waits until all
that were granted are durable. From version 5 on it tells the new topic's settings too.
"""

from collections import Counter

from headrace.base.time import Now
from headrace.machines.configs.describe import describe_topic
from headrace.machines.metadata.controller.controller import ControllerDecisions
from headrace.machines.metadata.controller.create_topics import CreatedTopic, NewTopic
from headrace.node.authorization import Access, Operation, Resource
from headrace.node.config_changes import broker_layers
from headrace.node.handlers.metadata import may_create
from headrace.node.metadata_log import MetadataLog
from headrace.node.proposals import propose
from headrace.node.quotas import Quotas
from headrace.node.routes import Request
from headrace.node.settings import LiveSettings
from headrace.node.waiting import Parked
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

CONFIGS_SINCE = 5
STRICT_SINCE = 6  # clients of this version know THROTTLING_QUOTA_EXCEEDED


class CreateTopics:
    def __init__(
        self,
        broker_id: int,
        metadata: MetadataLog,
        decisions: ControllerDecisions,
        settings: LiveSettings,
        access: Access,
        quotas: Quotas,
    ) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._decisions = decisions
        self._settings = settings
        self._access = access
        self._quotas = quotas

    def handle(self, request: Request) -> CreateTopicsResponse | Parked:
        body: CreateTopicsRequest = request.body
        results: list[CreatableTopicResult] = []
        wanted: dict[str, CreatableTopic] = {}
        topics: list[NewTopic] = []
        for topic in body.topics:
            refusal = self._refused(request, topic)
            if refusal is not None:
                results.append(refusal)
                continue
            wanted[topic.name] = topic
            topics.append(new_topic(topic))
        quota = self._quotas.mutation(request, STRICT_SINCE)
        decision = self._decisions.create_topics(
            topics, validate_only=body.validate_only, admits=quota.admits
        )
        offset = propose(self._metadata, request.now, decision)
        results += [self._result(request, created, wanted[created.name]) for created in decision.reply]
        response = CreateTopicsResponse(topics=results)
        self._quotas.mutated(quota, response)
        return self._metadata.when_known(request, offset, response)

    def decide(self, now: Now, body: CreateTopicsRequest) -> tuple[CreateTopicsResponse, int]:
        """For the broker of this process, which creates internal topics, and those that its clients want and
        may create.
        """
        decision = self._decisions.create_topics([new_topic(topic) for topic in body.topics])
        offset = propose(self._metadata, now, decision)
        results = [
            CreatableTopicResult(
                name=created.name,
                topic_id=created.topic_id,
                error_code=created.error,
                error_message=created.message,
            )
            for created in decision.reply
        ]
        return CreateTopicsResponse(topics=results), offset

    def _refused(self, request: Request, topic: CreatableTopic) -> CreatableTopicResult | None:
        """What is refused before the controller is asked."""
        if not may_create(self._access, request, topic.name):
            return CreatableTopicResult(
                name=topic.name,
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                error_message="Authorization failed.",
            )
        indexes = Counter(assignment.partition_index for assignment in topic.assignments)
        for index, times in indexes.items():
            if times > 1:
                return CreatableTopicResult(
                    name=topic.name,
                    error_code=ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    error_message=f"Found multiple manual partition assignments for partition {index}",
                )
        return None

    def _result(self, request: Request, created: CreatedTopic, topic: CreatableTopic) -> CreatableTopicResult:
        if created.error is not ErrorCode.NONE:
            return CreatableTopicResult(
                name=created.name, error_code=created.error, error_message=created.message
            )
        answer = CreatableTopicResult(name=created.name, topic_id=created.topic_id, error_message=None)
        if request.version < CONFIGS_SINCE:
            return answer
        if not self._access.shows(request, Operation.DESCRIBE_CONFIGS, Resource.TOPIC, created.name):
            answer.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return answer
        answer.num_partitions = created.partitions
        answer.replication_factor = created.replication_factor
        overrides = {config.name: config.value for config in topic.configs if config.value is not None}
        answer.configs = [
            CreatableTopicConfigs(
                name=config.name,
                value=config.value,
                read_only=config.is_read_only,
                config_source=config.source,
                is_sensitive=config.is_sensitive,
            )
            for config in describe_topic(
                overrides, broker_layers(self._broker_id, self._metadata, self._settings)
            )
        ]
        return answer


def new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        {assignment.partition_index: assignment.broker_ids for assignment in topic.assignments},
        {config.name: config.value for config in topic.configs},
    )
