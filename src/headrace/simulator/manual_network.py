"""A network between one client session and a node, in which the caller moves every frame.

`programs.shell` lets frames arrive at random times. Here a request reaches the node in `deliver`, and an
answer reaches the session in `hear`. A connection keeps its order; it may be cut before or after the node has
seen what is in it, and what was in it may still arrive long after (a ghost). Clients of one node have a
network each.
"""

from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from headrace.base.time import Instant
from headrace.client.cluster import Address
from headrace.client.errors import ClientError, ConnectionLost
from headrace.client.session import Answer, Outgoing
from headrace.node.connection import Connection
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.produce import ProduceResponse
from headrace.protocol.notation import Request
from headrace.simulator.frames import newest_request, request_bytes
from headrace.simulator.manual_host import ManualHost
from headrace.simulator.programs.shell import Driven


class SentRequest(NamedTuple):
    frame: bytearray
    ticket: int
    request: Request
    version: int
    expects_answer: bool


class Link:
    """One connection: requests on their way to the node, and the tickets that wait for answers."""

    def __init__(self, connection: Connection, to: Address | None) -> None:
        self.connection = connection
        self.to = to
        self.sent: deque[SentRequest] = deque()
        self.awaiting: deque[int] = deque()


class ManualNetwork:
    """Invariant: every ticket is settled once, by its answer or when its connection is cut.

    A connection per broker and lane, as real clients have them; or, with `is_unordered`, one per request.
    """

    def __init__(self, host: ManualHost, session: Driven, *, is_unordered: bool = False) -> None:
        self.host = host
        self.session = session
        self.links: dict[Hashable, Link] = {}
        self.ghosts: list[Link] = []  # given up by the client, with requests that have not arrived
        self.requests: list[tuple[Request, int]] = []  # all that were sent, with their versions
        # An answer that does not come from the node, which does not get the request then.
        self.answer_instead: Callable[[Link, Request], Answer | None] = lambda link, request: None
        self.change_answer: Callable[[Any], None] = lambda answer: None
        self._is_unordered = is_unordered

    @property
    def now(self) -> Instant:
        return Instant(self.host.clock.mono)

    # --- towards the node ----------------------------------------------------------------------------------

    def pump(self) -> None:
        """What the session wants to send is put on its way."""
        for outgoing in self.session.requests(self.now):
            self.post(outgoing)

    def post(self, outgoing: Outgoing) -> Link:
        request, version = newest_request(outgoing)
        self.requests.append((request, version))
        frame = request_bytes(request.KEY, version, outgoing.ticket, "c", request)
        link = self.link(outgoing.to, outgoing.lane, outgoing.ticket)
        link.sent.append(SentRequest(frame, outgoing.ticket, request, version, outgoing.expects_answer))
        return link

    def link(self, to: Address | None, lane: str = "", ticket: int = 0) -> Link:
        key = ticket if self._is_unordered else (to, lane)
        link = self.links.get(key)
        if link is None:
            link = self.links[key] = Link(self.host.connect(), to)
        return link

    def deliver(self, link: Link) -> bool:
        """The next request reaches the node; whether there was one."""
        if not link.sent:
            return False
        sent = link.sent.popleft()
        is_open = self.is_open(link)
        instead = self.answer_instead(link, sent.request)
        if instead is not None:
            if is_open:
                while self.hear(link):
                    pass  # answers come in the order of their requests
                self.session.answered(self.now, sent.ticket, instead)
            return True
        if sent.expects_answer:
            self.host.asked[link.connection.id].append((sent.request.KEY, sent.version))
            link.awaiting.append(sent.ticket)
        self.host.send_frame(link.connection, sent.frame)
        if not sent.expects_answer and is_open:
            self.session.answered(self.now, sent.ticket, ProduceResponse())
        return True

    # --- towards the session -------------------------------------------------------------------------------

    def has_answer(self, link: Link) -> bool:
        return bool(self.host.answers[link.connection.id])

    def hear(self, link: Link) -> bool:
        """The next answer reaches the session; whether there was one."""
        answer = self.host.receive(link.connection)
        if answer is None:
            return False
        self.change_answer(answer)
        ticket = link.awaiting.popleft()
        if self._is_unordered:
            self.links.pop(ticket, None)
        self.session.answered(self.now, ticket, answer)
        return True

    def exchange(self) -> bool:
        """All that is under way arrives; whether anything was."""
        self.pump()
        has_moved = False
        for link in list(self.links.values()):
            while self.deliver(link):
                has_moved = True
            while self.hear(link):
                has_moved = True
        return has_moved

    # --- faults --------------------------------------------------------------------------------------------

    def is_open(self, link: Link) -> bool:
        return any(other is link for other in self.links.values())

    def cut(self, link: Link, error: ClientError | None = None, *, leaves_ghost: bool = False) -> None:
        """The connection breaks; what was in it may still arrive, but nobody hears the answers."""
        self.links = {key: other for key, other in self.links.items() if other is not link}
        tickets = [*link.awaiting, *(sent.ticket for sent in link.sent)]
        link.awaiting.clear()
        # a ghost of InitProducerId would fence its own producer, as anybody with the same id would
        link.sent = deque(sent for sent in link.sent if not isinstance(sent.request, InitProducerIdRequest))
        if leaves_ghost and link.sent:
            self.ghosts.append(link)
        for ticket in tickets:
            self.session.answered(self.now, ticket, error or ConnectionLost("the connection was cut"))

    def cut_all(self) -> None:
        """As when the node dies: nothing that was sent arrives any more."""
        for link in list(self.links.values()):
            self.cut(link)
            link.sent.clear()
        self.ghosts.clear()

    def crash(self) -> None:
        """The node dies and starts again on its disks; for a node with this one client."""
        self.cut_all()
        self.host.restart()
