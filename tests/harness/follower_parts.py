"""The parts of a broker that is not in the active controller's process, over metadata that a test writes."""

from __future__ import annotations

from collections import deque
from typing import Any, cast

from headrace.base.time import ManualClock
from headrace.machines.metadata.image import ClusterImage
from headrace.node.controller_channel import ControllerChannel, Decide
from headrace.node.effects import Effect, Hangup, Send
from headrace.node.metadata_log import MetadataLog
from headrace.node.peers import Peers, Unanswered
from headrace.node.ports import Deadlines, Jobs, Lifecycle, Ports, Reports
from headrace.node.quotas import Quotas
from headrace.node.settings import LiveSettings, Settings
from headrace.node.waiting import Waitable, Waiting
from headrace.protocol.api import request_codec, response_codec
from headrace.protocol.framing import answer_frame, decode_request_header
from headrace.protocol.notation import Data, Request, Response

SETTINGS = {
    "node.id": "2",
    "listeners": "PLAINTEXT://127.0.0.1:9192,CONTROLLER://127.0.0.1:9193",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@host1:9093,2@127.0.0.1:9193,3@host3:9093",
    "log.dirs": "data",
}


class WrittenMetadata(Waitable):
    """Metadata as the test says it is."""

    def __init__(self) -> None:
        super().__init__()
        self.image = ClusterImage()
        self.is_active = False
        self.leader_id = 1
        self.leader_epoch = 5
        self.committed_offset = 0
        self.end_offset = 0
        self.has_lost_majority = False

    def is_majority_gone(self, _: Any) -> bool:
        return self.has_lost_majority


class FollowerParts:
    def __init__(self, *, decide: Decide | None = None) -> None:
        self.clock = ManualClock(mono=100.0)
        self.settings = LiveSettings(Settings.parse(SETTINGS))
        self.effects: list[Effect] = []
        self.lifecycle = Lifecycle()
        self.deadlines = Deadlines()
        self.reports = Reports(self.effects, self.lifecycle)
        self.waiting = Waiting(self.effects, self.deadlines, self.reports, Quotas(self.settings))
        self.peers = Peers(2, self.effects, self.deadlines)
        self.ports = Ports(
            self.deadlines, Jobs(self.effects), self.reports, self.lifecycle, self.waiting, self.peers
        )
        self._unanswered: deque[tuple[int, int, int]] = deque()  # tickets with API and version
        self.written = WrittenMetadata()
        self.metadata = cast("MetadataLog", self.written)
        self.channel = ControllerChannel(self.settings, self.metadata, self.ports, decide)

    @property
    def now(self) -> Any:
        return self.clock.now()

    def take_sent(self) -> list[tuple[int, Request]]:
        """Whom the node has asked since, and what."""
        sent = [effect for effect in self.effects if isinstance(effect, Send)]
        self.effects[:] = [effect for effect in self.effects if not isinstance(effect, Send)]
        asked = []
        for effect in sent:
            frame = effect.frame[4:]
            api_key, version, _, _, position = decode_request_header(frame)
            self._unanswered.append((effect.ticket, api_key, version))
            asked.append((effect.peer.id, request_codec(api_key, version).decode(frame, position)))
        return asked

    def answer(self, answer: Response | Unanswered) -> None:
        """To the oldest of those that `take_sent` returned."""
        ticket, api_key, version = self._unanswered.popleft()
        told: Any = answer
        if not isinstance(answer, Unanswered):
            codec = response_codec(api_key, version)
            told = memoryview(b"".join(cast("list[bytes]", answer_frame(codec, ticket, answer)))[4:])
        self.peers.answered(self.now, ticket, told)
        self.waiting.ask_awake(self.now)

    def hangups(self) -> list[Hangup]:
        return [effect for effect in self.effects if isinstance(effect, Hangup)]

    def advance(self, seconds: float) -> None:
        end = self.clock.mono + seconds
        while (at := self.deadlines.next()) is not None and at <= end:
            self.clock.advance(max(0.0, at - self.clock.mono))
            self.deadlines.fire(self.now)
            self.waiting.ask_awake(self.now)
        self.clock.advance(end - self.clock.mono)

    def commit(self, *records: Data) -> None:
        for record in records:
            self.written.image.replay(record)
        self.written.committed_offset += len(records)
        self.waiting.wake(self.written)
        self.waiting.ask_awake(self.now)
