"""BrokerRegistration, key 62, versions 0–4: a broker joins the cluster, fenced, and is told its epoch."""

from headrace.base.time import Now
from headrace.machines.metadata.controller.brokers import Registration
from headrace.machines.metadata.controller.controller import ControllerDecisions
from headrace.machines.metadata.controller.decision import Refusal
from headrace.machines.metadata.image import Endpoint
from headrace.node.broker_watch import BrokerWatch
from headrace.node.error_codes import FAULTS, code_of
from headrace.node.log_directories import LogDirectories
from headrace.node.metadata_log import MetadataLog
from headrace.node.ports import Reports
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)


class BrokerRegistration:
    def __init__(
        self,
        directories: LogDirectories,
        metadata: MetadataLog,
        decisions: ControllerDecisions,
        watch: BrokerWatch,
        reports: Reports,
    ) -> None:
        self._directories = directories
        self._metadata = metadata
        self._decisions = decisions
        self._watch = watch
        self._reports = reports

    def decide(self, now: Now, body: BrokerRegistrationRequest) -> tuple[BrokerRegistrationResponse, int]:
        end_offset = self._metadata.end_offset
        if body.cluster_id != self._directories.cluster_id:
            return BrokerRegistrationResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID), end_offset
        broker = body.broker_id
        is_live = self._watch.sessions.is_live(now, broker)
        try:
            decision = self._decisions.register_broker(asked(body), end_offset, is_live=is_live)
            offset = self._watch.propose(now, decision)
        except Refusal as refusal:
            if refusal.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                self._watch.dial(now, broker)  # perhaps the earlier run has ended unseen
            else:
                self._reports.report("warning", "broker_not_registered", broker=broker, error=refusal.message)
            return BrokerRegistrationResponse(error_code=refusal.code), end_offset
        except FAULTS as fault:
            return BrokerRegistrationResponse(error_code=code_of(fault)), end_offset
        self._watch.heard(now, self._decisions.image.brokers[broker])
        return BrokerRegistrationResponse(broker_epoch=decision.reply), offset


def asked(body: BrokerRegistrationRequest) -> Registration:
    return Registration(
        broker=body.broker_id,
        incarnation_id=bytes(body.incarnation_id),
        endpoints={one.name: Endpoint(one.host, one.port, one.security_protocol) for one in body.listeners},
        features={one.name: (one.min_supported_version, one.max_supported_version) for one in body.features},
        rack=body.rack,
        directories=[bytes(directory) for directory in body.log_dirs],
        previous_epoch=body.previous_broker_epoch,
    )
