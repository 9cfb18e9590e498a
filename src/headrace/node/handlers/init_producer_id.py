"""InitProducerId, key 22, versions 0–5: a fresh id with epoch 0 for an idempotent producer.

Transactional ids need a coordinator, which is not there yet; a client finds that out before it asks, since
FindCoordinator is not advertised.
"""

from headrace.node.authorization import CLUSTER_NAME, Operation, Resource
from headrace.node.committed_reply import CommittedReply
from headrace.node.faults import FAULTS
from headrace.node.node import Node
from headrace.node.request import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def handle(node: Node, request: Request) -> InitProducerIdResponse | CommittedReply:
    body: InitProducerIdRequest = request.body
    if body.transactional_id is not None:
        return InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, producer_epoch=-1)
    if not node.allows(request, Operation.IDEMPOTENT_WRITE, Resource.CLUSTER, CLUSTER_NAME):
        return InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, producer_epoch=-1)
    try:
        producer_id, granted_at = node.producer_ids.take(request.now)
    except FAULTS:
        # no new block can be granted at the moment; clients take this code, as Kafka's, for "again, later"
        return InitProducerIdResponse(
            error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, producer_id=-1, producer_epoch=-1
        )
    reply = InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
    if node.metadata.committed_offset < granted_at:
        return CommittedReply(node, request, granted_at, reply)
    return reply
