"""AllocateProducerIds, key 67, version 0: a block of producer ids for one broker."""

from headrace.base.time import Now
from headrace.machines.metadata.controller.controller import ControllerDecisions
from headrace.machines.metadata.controller.decision import Refusal
from headrace.node.error_codes import FAULTS, code_of
from headrace.node.metadata_log import MetadataLog
from headrace.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)


class AllocateProducerIds:
    def __init__(self, metadata: MetadataLog, decisions: ControllerDecisions) -> None:
        self._metadata = metadata
        self._decisions = decisions

    def decide(self, now: Now, body: AllocateProducerIdsRequest) -> tuple[AllocateProducerIdsResponse, int]:
        try:
            decision = self._decisions.allocate_producer_ids(body.broker_id, body.broker_epoch)
            offset = self._metadata.propose(now, decision)
        except Refusal as refusal:
            return AllocateProducerIdsResponse(error_code=refusal.code), self._metadata.end_offset
        except FAULTS as fault:
            return AllocateProducerIdsResponse(error_code=code_of(fault)), self._metadata.end_offset
        block = decision.reply
        return AllocateProducerIdsResponse(producer_id_start=block.start, producer_id_len=len(block)), offset
