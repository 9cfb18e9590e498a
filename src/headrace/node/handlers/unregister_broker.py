"""UnregisterBroker, key 64, version 0: an operator says that a broker will not come back."""

from headrace.machines.metadata.controller.controller import ControllerDecisions
from headrace.machines.metadata.controller.decision import Refusal
from headrace.node.authorization import CLUSTER_NAME, Access, Operation, Resource
from headrace.node.broker_watch import BrokerWatch
from headrace.node.error_codes import FAULTS, code_of
from headrace.node.metadata_log import MetadataLog
from headrace.node.metadata_replies import CommittedReply
from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


class UnregisterBroker:
    def __init__(
        self, metadata: MetadataLog, decisions: ControllerDecisions, watch: BrokerWatch, access: Access
    ) -> None:
        self._metadata = metadata
        self._decisions = decisions
        self._watch = watch
        self._access = access

    def handle(self, request: Request) -> UnregisterBrokerResponse | CommittedReply:
        body: UnregisterBrokerRequest = request.body
        if not self._access.allows(request, Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME):
            return refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Authorization failed.")
        try:
            offset = self._watch.propose(request.now, self._decisions.unregister_broker(body.broker_id))
        except Refusal as refusal:
            return refused(refusal.code, refusal.message)
        except FAULTS as fault:
            return refused(code_of(fault), str(fault))
        self._watch.sessions.end([body.broker_id])
        return self._metadata.when_committed(request, offset, UnregisterBrokerResponse(error_message=None))


def refused(code: ErrorCode, message: str) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(error_code=code, error_message=message)
