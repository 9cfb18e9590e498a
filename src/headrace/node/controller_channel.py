"""Requests of this broker to the active controller, wherever that is.

If the active controller is in this process, the request is a call; otherwise it goes to the leader of the
metadata log. A request that found no controller, or whose answer was lost, is sent again: send only requests
that may be carried out twice. The answer arrives in a later call of the node, never inside `send`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from headrace.base.time import Now
from headrace.node.metadata_log import MetadataLog
from headrace.node.peers import CONTROLLERS, Completion, Peer, Unanswered
from headrace.node.ports import Act, Once, Ports
from headrace.node.settings import LiveSettings
from headrace.node.waiting import Waiter, Waiting
from headrace.protocol.notation import Request

# Connections of their own, as in Kafka: a heartbeat does not wait behind a client's request, and one that is
# given up, with its connection, takes no such request along.
LANE = "controller"
HEARTBEATS = "heartbeats"
FORWARDING = "forwarding"

REQUEST_TIMEOUT_MS = 5_000

# Between two tries: short at first, because a new controller is elected in a fraction of a second.
BACKOFF_MS_MIN = 20
BACKOFF_MS_MAX = 200

# Answers a request in this process: the response, and the metadata offset whose commit makes it true.
Decide = Callable[[Now, Request], tuple[Any, int]]


class Question:
    """A request, and what is called with its answer."""

    __slots__ = ("body", "lane", "retries", "then", "timeout_ms", "tries")

    def __init__(self, body: Request, then: Completion, lane: str, timeout_ms: int, *, retries: bool) -> None:
        self.body = body
        self.lane = lane
        self.then = then
        self.timeout_ms = timeout_ms
        self.retries = retries
        self.tries = 0


class ControllerChannel:
    def __init__(
        self, settings: LiveSettings, metadata: MetadataLog, ports: Ports, decide: Decide | None
    ) -> None:
        """`decide` answers when the active controller is in this process; None: it never is."""
        self._settings = settings
        self._metadata = metadata
        self._deadlines = ports.deadlines
        self._lifecycle = ports.lifecycle
        self._waiting = ports.waiting
        self._peers = ports.peers
        self._decide = decide
        self._sent: dict[Question, int] = {}  # those under way, and the node that was asked
        self._leader_watch = LeaderWatch(self)

    @property
    def is_local(self) -> bool:
        """The active controller is in this process."""
        return self._decide is not None and self._metadata.is_active

    def send(
        self,
        now: Now,
        body: Request,
        then: Completion,
        *,
        lane: str = LANE,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
        retries: bool = True,
    ) -> None:
        """Ask the active controller. Without `retries`, `then` may get a response of a node that is not the
        controller, or an Unanswered.
        """
        self._try(now, Question(body, then, lane, timeout_ms, retries=retries))

    def _try(self, now: Now, question: Question) -> None:
        question.tries += 1
        if self.is_local:
            self._waiting.wake_one(LocalQuestion(self, question))
            return
        peer = self._controller()
        if peer is None:
            Once(self._deadlines, now.after_ms(backoff_ms(question.tries)), partial(self._nobody, question))
            return
        self._sent[question] = peer.id
        if not self._leader_watch.waits_for:
            self._leader_watch.wait_for(self._metadata)
        self._peers.send(
            now, peer, question.lane, question.body, question.timeout_ms, partial(self._answered, question)
        )

    def decide(self, now: Now, question: Question) -> None:
        """Answer in this process, once the answer is committed."""
        if self._decide is None or not self._metadata.is_active:
            self.finish(now, question, Unanswered.REFUSED, has_failed=True)
            return
        response, offset = self._decide(now, question.body)
        CommittedAnswer(self, question, response, offset, self._metadata).begin(self._waiting)

    def _controller(self) -> Peer | None:
        """Where the leader of the metadata log is, if it is known and another node."""
        leader_id = self._metadata.leader_id
        settings = self._settings.current
        if leader_id == settings.node_id:
            return None
        for voter in settings.quorum_voters:
            if voter.id == leader_id:
                return Peer(voter.id, voter.host, voter.port, CONTROLLERS)
        return None

    def _answered(self, question: Question, now: Now, answer: Any) -> None:
        from headrace.node.not_controller import is_from_no_controller

        self._sent.pop(question, None)
        if not self._sent:
            self._leader_watch.leave()
        self.finish(
            now, question, answer, has_failed=isinstance(answer, Unanswered) or is_from_no_controller(answer)
        )

    def _nobody(self, question: Question, now: Now) -> None:
        if question.retries:
            if not self._lifecycle.is_stopping:
                self._try(now, question)
        else:
            question.then(now, Unanswered.REFUSED)

    def finish(self, now: Now, question: Question, answer: Any, *, has_failed: bool) -> None:
        if not has_failed or not question.retries:
            question.then(now, answer)
            return
        self.later(now, question.tries, lambda now: self._try(now, question))

    def later(self, now: Now, tries: int, act: Act) -> None:
        """After so many tries in vain: try again after a pause, unless the node stops meanwhile."""

        def again(now: Now) -> None:
            if not self._lifecycle.is_stopping:
                act(now)

        Once(self._deadlines, now.after_ms(backoff_ms(tries)), again)

    def leader_changed(self) -> None:
        """Whoever leads no more may never answer: what was asked there is asked again elsewhere."""
        for peer_id, lane in dict.fromkeys((peer_id, one.lane) for one, peer_id in self._sent.items()):
            if peer_id != self._metadata.leader_id:
                self._peers.close(peer_id, lane)


def backoff_ms(tries: int) -> int:
    return min(BACKOFF_MS_MAX, BACKOFF_MS_MIN << min(tries - 1, 8))


class LeaderWatch(Waiter):
    """Looks at the leader of the metadata log while requests are under way."""

    __slots__ = ("_channel",)

    def __init__(self, channel: ControllerChannel) -> None:
        super().__init__()
        self._channel = channel

    def woken(self, now: Now) -> None:
        self._channel.leader_changed()


class LocalQuestion(Waiter):
    """A question to the controller in this process. It is decided at the end of the call: the call may be in
    the middle of a commit, or of an election.
    """

    __slots__ = ("_channel", "_question")

    def __init__(self, channel: ControllerChannel, question: Question) -> None:
        super().__init__()
        self._channel = channel
        self._question = question

    def woken(self, now: Now) -> None:
        self._channel.decide(now, self._question)


class CommittedAnswer(Waiter):
    """An answer from this process, which is true once the metadata is committed up to `offset`."""

    __slots__ = ("_channel", "_epoch", "_metadata", "_offset", "_question", "_response")

    def __init__(
        self,
        channel: ControllerChannel,
        question: Question,
        response: Any,
        offset: int,
        metadata: MetadataLog,
    ) -> None:
        super().__init__()
        self._channel = channel
        self._question = question
        self._response = response
        self._offset = offset
        self._metadata = metadata
        self._epoch = metadata.leader_epoch

    def begin(self, waiting: Waiting) -> None:
        self.wait_for(self._metadata)
        if self._metadata.committed_offset >= self._offset:
            waiting.wake_one(self)

    def woken(self, now: Now) -> None:
        has_lost = self._metadata.leader_epoch != self._epoch or not self._metadata.is_active
        if has_lost or self._metadata.committed_offset >= self._offset:
            self.forget()
            answer = Unanswered.LOST if has_lost else self._response
            self._channel.finish(now, self._question, answer, has_failed=has_lost)
