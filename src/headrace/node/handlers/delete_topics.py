"""DeleteTopics, key 20, versions 1–6: by name, from version 6 on by name or id."""

from headrace.base.ids import NO_TOPIC_ID, TopicId
from headrace.machines.metadata.controller.controller import ControllerDecisions
from headrace.machines.metadata.controller.delete_topics import DeletedTopic, DoomedTopic, resolve
from headrace.node.authorization import CLUSTER_NAME, Access, Operation, Resource
from headrace.node.metadata_log import MetadataLog
from headrace.node.proposals import propose
from headrace.node.quotas import Quotas
from headrace.node.routes import Request
from headrace.node.settings import LiveSettings
from headrace.node.waiting import Parked
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

BY_ID_SINCE = 6
DISABLED_ERROR_SINCE = 3
STRICT_SINCE = 5  # clients of this version know THROTTLING_QUOTA_EXCEEDED


class DeleteTopics:
    def __init__(
        self,
        metadata: MetadataLog,
        decisions: ControllerDecisions,
        settings: LiveSettings,
        access: Access,
        quotas: Quotas,
    ) -> None:
        self._metadata = metadata
        self._decisions = decisions
        self._settings = settings
        self._access = access
        self._quotas = quotas

    def handle(self, request: Request) -> DeleteTopicsResponse | Parked:
        body: DeleteTopicsRequest = request.body
        if request.version >= BY_ID_SINCE:
            asked = [DoomedTopic(topic.name, TopicId(topic.topic_id)) for topic in body.topics]
        else:
            asked = [DoomedTopic(name) for name in body.topic_names]
        refused: list[DeletedTopic] = []
        doomed: list[DoomedTopic] = []
        for topic in asked:
            refusal = self._refusal_of(request, topic)
            if refusal is None:
                doomed.append(topic)
            else:
                refused.append(refusal)
        quota = self._quotas.mutation(request, STRICT_SINCE)
        decision = self._decisions.delete_topics(doomed, quota.admits)
        offset = propose(self._metadata, request.now, decision)
        response = DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(
                    name=deleted.name,
                    topic_id=deleted.topic_id,
                    error_code=deleted.error,
                    error_message=deleted.message,
                )
                for deleted in refused + decision.reply
            ]
        )
        self._quotas.mutated(quota, response)
        return self._metadata.when_known(request, offset, response)

    def _refusal_of(self, request: Request, topic: DoomedTopic) -> DeletedTopic | None:
        """What is refused before the controller is asked."""
        if not self._settings.current.delete_topic_enable:
            code = (
                ErrorCode.TOPIC_DELETION_DISABLED
                if request.version >= DISABLED_ERROR_SINCE
                else ErrorCode.INVALID_REQUEST
            )
            return DeletedTopic(topic.name, topic.topic_id, code, "Topic deletion is disabled.")
        meant = resolve(self._decisions.image, topic)
        name = meant.name
        if name is None or meant.error is ErrorCode.INVALID_REQUEST or self._may_delete(request, name):
            return None
        is_seen = self._access.shows(request, Operation.DESCRIBE, Resource.TOPIC, name)
        if is_seen and meant.error is not ErrorCode.NONE:
            return None  # that it is not there is no secret
        refused = DeletedTopic(
            name, NO_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed."
        )
        if topic.name is None:
            refused.topic_id = topic.topic_id
            if not is_seen:
                refused.name = None  # whoever may not see the topic does not learn whose id it is
        return refused

    def _may_delete(self, request: Request, name: str) -> bool:
        access = self._access
        return access.shows(request, Operation.DELETE, Resource.CLUSTER, CLUSTER_NAME) or access.allows(
            request, Operation.DELETE, Resource.TOPIC, name
        )
