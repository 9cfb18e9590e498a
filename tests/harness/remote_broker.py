"""A broker as an active controller sees it: the requests that it sends, without a node behind it."""

from __future__ import annotations

from typing import Any

from headrace.machines.metadata.image import BrokerState
from headrace.machines.metadata.versions import SUPPORTED_FEATURES
from headrace.node.connection import Connection
from headrace.node.peers import Unanswered
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from headrace.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from headrace.simulator.manual_host import ManualHost

CONTROLLER_ALONE = {
    "node.id": "7",
    "process.roles": "controller",
    "controller.listener.names": "CONTROLLER",
    "listeners": "CONTROLLER://127.0.0.1:9093",
    "log.dirs": "data",
}


class RemoteBroker:
    def __init__(self, controller: ManualHost, id: int, *, run: int = 1) -> None:
        self.controller = controller
        self.id = id
        self.run = run
        self.epoch = -1
        self.connection: Connection = controller.connect()

    @property
    def state(self) -> BrokerState:
        return self.controller.node.controller.metadata.image.brokers[self.id]

    def ask(self, request: Any, version: int) -> Any:
        return self.controller.ask(request, version, self.connection)

    def registration(self, **facts: Any) -> BrokerRegistrationRequest:
        request = BrokerRegistrationRequest(
            broker_id=self.id,
            cluster_id=self.controller.node.directories.cluster_id,
            incarnation_id=bytes([self.id, self.run]) * 8,
            listeners=[Listener(name="PLAINTEXT", host=f"host{self.id}", port=9092, security_protocol=0)],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
            rack=None,
            log_dirs=[bytes([self.id, 1]) * 8],
            previous_broker_epoch=self.epoch,
        )
        for name, value in facts.items():
            setattr(request, name, value)
        return request

    def register(self, **facts: Any) -> ErrorCode:
        response = self.ask(self.registration(**facts), 4)
        if response.error_code == ErrorCode.NONE:
            self.epoch = response.broker_epoch
        return ErrorCode(response.error_code)

    def beat(self, **facts: Any) -> Any:
        committed = self.controller.node.controller.metadata.committed_offset
        request = BrokerHeartbeatRequest(
            broker_id=self.id, broker_epoch=self.epoch, current_metadata_offset=committed - 1
        )
        for name, value in facts.items():
            setattr(request, name, value)
        return self.ask(request, 2)

    def start(self) -> RemoteBroker:
        assert self.register() is ErrorCode.NONE
        assert not self.beat().is_fenced
        return self

    def hang_up(self) -> None:
        self.controller.node.disconnected(self.controller.clock.now(), self.connection)
        self.controller.settle()
        self.connection = self.controller.connect()


def dialled(controller: ManualHost) -> list[int]:
    """The brokers that the controller tries to reach."""
    return [one.peer.id for one in controller.sent if one.lane == "dial"]


def answer_dial(controller: ManualHost, answer: Unanswered | bytes) -> None:
    """What became of the oldest dial: nobody is there, or a frame of an answer."""
    sent = controller.sent.popleft()
    assert sent.lane == "dial"
    told = answer if isinstance(answer, Unanswered) else memoryview(answer)
    controller.node.answered(controller.clock.now(), sent.ticket, told)
    controller.settle()
