"""BrokerHeartbeat, key 63, versions 0–2: a broker is alive; it wants to lead, or to stop."""

from headrace.base.time import Now
from headrace.machines.metadata.controller.controller import ControllerDecisions
from headrace.machines.metadata.controller.decision import Refusal
from headrace.machines.metadata.controller.heartbeats import Heartbeat
from headrace.node.broker_watch import BrokerWatch
from headrace.node.error_codes import FAULTS, code_of
from headrace.node.metadata_log import MetadataLog
from headrace.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse


class BrokerHeartbeat:
    def __init__(self, metadata: MetadataLog, decisions: ControllerDecisions, watch: BrokerWatch) -> None:
        self._metadata = metadata
        self._decisions = decisions
        self._watch = watch

    def decide(self, now: Now, body: BrokerHeartbeatRequest) -> tuple[BrokerHeartbeatResponse, int]:
        beat = Heartbeat(
            body.broker_id,
            body.broker_epoch,
            body.current_metadata_offset,
            body.want_fence,
            body.want_shut_down,
            [bytes(directory) for directory in body.offline_log_dirs],
        )
        sessions = self._watch.sessions
        try:
            decision = self._decisions.heartbeat(now, beat, sessions)
            offset = self._watch.propose(now, decision)
        except Refusal as refusal:
            return BrokerHeartbeatResponse(error_code=refusal.code), self._metadata.end_offset
        except FAULTS as fault:
            return BrokerHeartbeatResponse(error_code=code_of(fault)), self._metadata.end_offset
        state = self._decisions.image.brokers[beat.broker]
        if state.in_controlled_shutdown:
            sessions.shutting_down(state.id, offset - 1)
        reply = decision.reply
        return (
            BrokerHeartbeatResponse(
                is_caught_up=reply.is_caught_up, is_fenced=reply.is_fenced, should_shut_down=reply.may_stop
            ),
            offset,
        )
