"""A broker asks the active controller: here, elsewhere, and while there is none."""

from __future__ import annotations

from typing import Any

import pytest

from harness.follower_parts import FollowerParts
from headrace.node.controller_channel import HEARTBEATS
from headrace.node.effects import Hangup
from headrace.node.peers import Unanswered
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from headrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

QUESTION = AllocateProducerIdsRequest(broker_id=2, broker_epoch=7)
ANSWER = AllocateProducerIdsResponse(producer_id_start=5, producer_id_len=1000)
NOT_CONTROLLER = AllocateProducerIdsResponse(error_code=ErrorCode.NOT_CONTROLLER)


def ask(parts: FollowerParts, body: Any = QUESTION, **options: Any) -> list[Any]:
    answers: list[Any] = []
    parts.channel.send(parts.now, body, lambda now, answer: answers.append(answer), **options)
    return answers


def test_the_leader_of_the_metadata_log_is_asked() -> None:
    parts = FollowerParts()
    answers = ask(parts)
    assert parts.take_sent() == [(1, QUESTION)]
    parts.answer(ANSWER)
    assert answers == [ANSWER]


@pytest.mark.parametrize("failure", [NOT_CONTROLLER, *Unanswered])
def test_it_is_asked_again_wherever_the_controller_is_then(failure: Any) -> None:
    parts = FollowerParts()
    answers = ask(parts)
    parts.take_sent()
    parts.answer(failure)
    assert answers == []
    parts.written.leader_id = 3
    parts.advance(0.02)
    assert parts.take_sent() == [(3, QUESTION)]
    parts.answer(ANSWER)
    assert answers == [ANSWER]


def test_a_response_that_says_it_for_each_topic() -> None:
    parts = FollowerParts()
    answers = ask(parts, CreateTopicsRequest(topics=[CreatableTopic(name="t")]))
    parts.take_sent()
    result = CreatableTopicResult(name="t", error_code=ErrorCode.NOT_CONTROLLER)
    parts.answer(CreateTopicsResponse(topics=[result]))
    parts.advance(0.02)
    assert len(parts.take_sent()) == 1
    assert answers == []


def test_whoever_wants_no_retries_is_told() -> None:
    parts = FollowerParts()
    answers = ask(parts, retries=False)
    parts.take_sent()
    parts.answer(Unanswered.LOST)
    assert answers == [Unanswered.LOST]
    parts.written.leader_id = -1
    answers = ask(parts, retries=False)
    parts.advance(0.02)
    assert answers == [Unanswered.REFUSED], "there is no controller"


@pytest.mark.parametrize("leader_id", [-1, 2], ids=["nobody", "this node, but not yet"])
def test_while_there_is_no_controller_it_waits(leader_id: int) -> None:
    parts = FollowerParts()
    parts.written.leader_id = leader_id
    answers = ask(parts)
    parts.advance(1.0)
    assert parts.take_sent() == []
    parts.written.leader_id = 3
    parts.advance(0.2)
    assert parts.take_sent() == [(3, QUESTION)]
    assert answers == []


def test_when_the_leader_changes_nobody_waits_for_the_old_one() -> None:
    """It may be paused, and never answer."""
    parts = FollowerParts()
    ask(parts)
    parts.take_sent()
    parts.written.leader_id = 3
    parts.commit()
    assert parts.hangups() == [Hangup(1, "controller")]
    parts.answer(Unanswered.LOST)
    parts.advance(0.02)
    assert parts.take_sent() == [(3, QUESTION)]


def test_a_heartbeat_that_is_given_up_takes_nothing_else_along() -> None:
    parts = FollowerParts()
    answers, beats = ask(parts), ask(parts, lane=HEARTBEATS, timeout_ms=2_000, retries=False)
    parts.take_sent()
    parts.advance(2)
    assert parts.hangups() == [Hangup(1, HEARTBEATS)]
    assert beats == [Unanswered.SILENT]
    parts.answer(ANSWER)
    assert answers == [ANSWER]


def test_each_lane_to_an_old_leader_is_given_up() -> None:
    parts = FollowerParts()
    ask(parts), ask(parts), ask(parts, lane=HEARTBEATS)
    parts.take_sent()
    parts.written.leader_id = 3
    parts.commit()
    assert parts.hangups() == [Hangup(1, "controller"), Hangup(1, HEARTBEATS)]


class TestHere:
    def parts(self) -> FollowerParts:
        parts = FollowerParts(decide=lambda now, body: (ANSWER, 3))
        parts.written.is_active = True
        return parts

    def test_the_answer_is_given_once_it_is_committed(self) -> None:
        parts = self.parts()
        answers = ask(parts)
        parts.waiting.ask_awake(parts.now)
        assert answers == []
        parts.written.committed_offset = 3
        parts.commit()
        assert answers == [ANSWER]
        assert parts.take_sent() == []

    def test_never_inside_send(self) -> None:
        parts = self.parts()
        parts.written.committed_offset = 3
        answers = ask(parts)
        assert answers == []
        parts.waiting.ask_awake(parts.now)
        assert answers == [ANSWER]

    def test_if_another_node_leads_before_it_is_asked_again_there(self) -> None:
        parts = self.parts()
        answers = ask(parts)
        parts.written.is_active, parts.written.leader_id, parts.written.leader_epoch = False, 3, 6
        parts.written.committed_offset = 9  # by what the other wrote
        parts.commit()
        assert answers == []
        parts.advance(0.02)
        assert parts.take_sent() == [(3, QUESTION)]
