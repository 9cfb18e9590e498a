"""A broker joins a cluster whose controller is elsewhere, stays in it, and leaves it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from harness.follower_parts import SETTINGS, FollowerParts
from headrace.machines.metadata.controller.brokers import Registration
from headrace.machines.metadata.image import Endpoint
from headrace.node.broker_lifecycle import BrokerLifecycle
from headrace.node.effects import Halt
from headrace.node.log_directories import LogDirectories
from headrace.node.metrics import Metrics
from headrace.node.peers import Unanswered
from headrace.node.settings import Settings
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from headrace.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from headrace.protocol.metadata_records import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from headrace.storage.memory_disk import MemoryDisk

RUN = b"r" * 16
EPOCH = 4


class Story:
    def __init__(self, *log_dirs: str) -> None:
        self.parts = parts = FollowerParts()
        self.directories = LogDirectories(
            Settings.parse(SETTINGS | ({"log.dirs": ",".join(log_dirs)} if log_dirs else {})),
            {name: MemoryDisk() for name in log_dirs or ("data",)},
            Random(1),
            "boot",
            parts.now,
            parts.ports,
            Metrics(),
        )
        own = [directory.directory_id for _, directory in self.directories.online()]
        self.registration = Registration(2, RUN, {"PLAINTEXT": Endpoint("h", 1, 0)}, {}, "rack", own, 3)
        self.lifecycle = BrokerLifecycle(
            self.registration, parts.settings, self.directories, parts.metadata, parts.channel, parts.ports
        )
        parts.written.committed_offset = EPOCH

    def commit(self, *records: Any) -> None:
        self.parts.commit(*records)
        self.lifecycle.committed(self.parts.now, self.parts.written.image, list(records))

    def next(self) -> Any:
        """The request that the broker sends now."""
        ((_, request),) = self.parts.take_sent()
        return request

    def register(self) -> None:
        self.lifecycle.start(self.parts.now)
        assert isinstance(self.next(), BrokerRegistrationRequest)
        self.parts.answer(BrokerRegistrationResponse(broker_epoch=EPOCH))

    def registered(self, *, broker: int = 2, run: bytes = RUN, fenced: bool = True) -> RegisterBrokerRecord:
        epoch = EPOCH if broker == 2 else 1
        return RegisterBrokerRecord(
            broker_id=broker, incarnation_id=run, broker_epoch=epoch, fenced=fenced, rack=None
        )

    def unfence(self) -> None:
        self.register()
        self.commit(self.registered(), self.registered(broker=1, run=b"1" * 16, fenced=False))
        beat = self.next()
        assert isinstance(beat, BrokerHeartbeatRequest)
        self.parts.answer(BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False))
        self.commit(BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=EPOCH, fenced=-1))

    def is_halted(self) -> bool:
        return any(isinstance(effect, Halt) for effect in self.parts.effects)


def test_it_registers_follows_the_metadata_and_is_unfenced() -> None:
    story = Story()
    story.lifecycle.start(story.parts.now)
    request = story.next()
    assert (request.broker_id, request.incarnation_id, request.previous_broker_epoch) == (2, RUN, 3)
    assert (request.rack, request.cluster_id) == ("rack", story.directories.cluster_id)
    story.parts.answer(BrokerRegistrationResponse(broker_epoch=EPOCH))
    assert story.lifecycle.epoch == EPOCH
    assert not story.lifecycle.is_ready
    story.commit(story.registered())
    beat = story.next()
    assert (beat.broker_epoch, beat.current_metadata_offset) == (EPOCH, EPOCH), "at once"
    assert (beat.want_fence, beat.want_shut_down) == (False, False)
    story.parts.answer(BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False))
    assert not story.lifecycle.is_ready, "only when the metadata says so"
    story.commit(BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=EPOCH, fenced=-1))
    assert story.lifecycle.is_ready


def test_heartbeats_come_in_their_interval() -> None:
    story = Story()
    story.unfence()
    for _ in range(3):
        story.parts.advance(1.9)
        assert story.parts.take_sent() == []
        story.parts.advance(0.1)
        assert isinstance(story.next(), BrokerHeartbeatRequest)
        story.parts.answer(BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False))


@pytest.mark.parametrize(
    "answer",
    [
        Unanswered.REFUSED,
        Unanswered.LOST,
        Unanswered.SILENT,
        BrokerRegistrationResponse(error_code=ErrorCode.NOT_CONTROLLER),
        BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION),
    ],
)
def test_it_tries_to_register_until_it_is_registered(answer: Any) -> None:
    story = Story()
    story.lifecycle.start(story.parts.now)
    for _ in range(3):
        assert isinstance(story.next(), BrokerRegistrationRequest)
        story.parts.answer(answer)
        story.parts.advance(0.05)
    story.next()
    story.parts.advance(70)
    story.parts.take_sent()
    assert story.is_halted(), "initial.broker.registration.timeout.ms"


def test_it_says_why_it_could_not_register() -> None:
    """Two nodes have the same id: the second waits until the first has ended, but not for ever."""
    story = Story()
    story.lifecycle.start(story.parts.now)
    while not story.is_halted():
        story.next()
        story.parts.answer(BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION))
        story.parts.advance(1)
    (halt,) = (effect for effect in story.parts.effects if isinstance(effect, Halt))
    assert halt.reason.endswith(
        "for 60 s (initial.broker.registration.timeout.ms): another broker has this id"
    )


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        ErrorCode.INVALID_REGISTRATION,
        ErrorCode.UNSUPPORTED_VERSION,
    ],
)
def test_a_broker_that_does_not_belong_here_ends(code: ErrorCode) -> None:
    story = Story()
    story.lifecycle.start(story.parts.now)
    story.next()
    story.parts.answer(BrokerRegistrationResponse(error_code=code))
    assert story.is_halted()


def test_when_it_was_fenced_it_asks_at_once() -> None:
    story = Story()
    story.unfence()
    story.commit(BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=EPOCH, fenced=1))
    assert not story.lifecycle.is_ready
    assert isinstance(story.next(), BrokerHeartbeatRequest)


def test_a_controller_that_does_not_answer_is_asked_again_soon() -> None:
    story = Story()
    story.unfence()
    story.parts.advance(2)
    story.next()
    story.parts.written.leader_id = 3
    story.parts.answer(Unanswered.LOST)
    story.parts.advance(0.05)
    ((asked, _),) = story.parts.take_sent()
    assert asked == 3


def test_a_new_controller_hears_of_it_at_once() -> None:
    story = Story()
    story.unfence()
    story.parts.written.leader_id = 3
    story.parts.commit()
    ((asked, request),) = story.parts.take_sent()
    assert (asked, type(request)) == (3, BrokerHeartbeatRequest)


def test_an_unregistered_broker_registers_again() -> None:
    story = Story()
    story.unfence()
    story.commit(UnregisterBrokerRecord(broker_id=2, broker_epoch=EPOCH))
    assert isinstance(story.next(), BrokerRegistrationRequest)


def test_so_does_one_whose_epoch_is_stale() -> None:
    story = Story()
    story.unfence()
    story.parts.advance(2)
    story.next()
    story.parts.answer(BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    story.parts.advance(0.05)
    assert isinstance(story.next(), BrokerRegistrationRequest)


def test_it_goes_on_trying_however_long_ago_it_has_started() -> None:
    """The time limit is for the first registration of a run. Now the controller is just moving."""
    story = Story()
    story.unfence()
    for _ in range(40):
        story.parts.advance(2)
        story.next()
        story.parts.answer(BrokerHeartbeatResponse(is_caught_up=True))
    story.commit(UnregisterBrokerRecord(broker_id=2, broker_epoch=EPOCH))
    assert isinstance(story.next(), BrokerRegistrationRequest)
    story.parts.answer(Unanswered.LOST)
    assert not story.is_halted()
    story.parts.advance(0.05)
    assert isinstance(story.next(), BrokerRegistrationRequest)


def test_a_directory_that_fails_is_told_at_once() -> None:
    """Nobody can use the partitions that are led there before others lead them."""
    story = Story("data", "other")
    story.unfence()
    failing = story.directories["other"].directory_id
    story.directories.go_offline(story.parts.now, "other", OSError("a broken disk"))
    assert story.next().offline_log_dirs == [failing]
    story.parts.answer(BrokerHeartbeatResponse(is_caught_up=True))
    story.directories.go_offline(story.parts.now, "other", OSError("another file on it"))
    assert not story.parts.take_sent(), "once"


def test_it_tells_at_once_that_it_knows_who_leads_instead_of_one_that_stops() -> None:
    story = Story()
    story.unfence()
    story.commit(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, in_controlled_shutdown=1))
    beat = story.next()
    assert isinstance(beat, BrokerHeartbeatRequest)
    assert beat.current_metadata_offset == story.parts.written.committed_offset - 1


def test_also_if_a_heartbeat_is_under_way() -> None:
    story = Story()
    story.unfence()
    story.parts.advance(2)
    story.next()
    story.commit(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, in_controlled_shutdown=1))
    assert story.parts.take_sent() == []
    story.parts.answer(BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False))
    story.parts.advance(0)
    assert story.next().current_metadata_offset == story.parts.written.committed_offset - 1


class TestLeaving:
    def test_it_waits_until_others_lead(self) -> None:
        story = Story()
        story.unfence()
        assert not story.lifecycle.has_left(story.parts.now)
        assert story.next().want_shut_down
        story.parts.answer(BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False))
        assert not story.lifecycle.has_left(story.parts.now)
        story.parts.advance(0.05)
        assert story.next().want_shut_down
        answer = BrokerHeartbeatResponse(is_caught_up=True, is_fenced=True, should_shut_down=True)
        story.parts.answer(answer)
        assert story.lifecycle.has_left(story.parts.now)
        story.commit(BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=EPOCH, fenced=1))
        story.parts.advance(5)
        assert story.parts.take_sent() == [], "it does not come back"

    def test_without_others_it_leaves_at_once(self) -> None:
        story = Story()
        story.register()
        story.commit(story.registered(fenced=False))
        story.parts.take_sent()
        assert story.lifecycle.has_left(story.parts.now)

    def test_without_a_controller_it_leaves_in_the_end(self) -> None:
        story = Story()
        story.unfence()
        assert not story.lifecycle.has_left(story.parts.now)
        story.parts.written.leader_id = -1
        story.parts.advance(2.9)
        assert not story.lifecycle.has_left(story.parts.now)
        story.parts.advance(0.1)
        assert story.lifecycle.has_left(story.parts.now)

    def test_when_most_controllers_have_ended_it_waits_for_nobody(self) -> None:
        """All nodes were stopped at once, and this one is the last."""
        story = Story()
        story.unfence()
        assert not story.lifecycle.has_left(story.parts.now)
        story.parts.written.has_lost_majority = True
        assert story.lifecycle.has_left(story.parts.now)

    def test_when_all_others_have_left_it_leaves_too(self) -> None:
        story = Story()
        story.unfence()
        assert not story.lifecycle.has_left(story.parts.now)
        story.commit(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=1))
        assert story.lifecycle.has_left(story.parts.now)

    def test_if_leaders_cannot_move_it_leaves_in_the_end(self) -> None:
        story = Story()
        story.unfence()
        assert not story.lifecycle.has_left(story.parts.now)
        for _ in range(99):
            story.next()
            story.parts.answer(BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False))
            assert not story.lifecycle.has_left(story.parts.now)
            story.parts.advance(0.1)
        story.parts.advance(0.2)
        assert story.lifecycle.has_left(story.parts.now)
