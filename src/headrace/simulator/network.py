"""The simulated network between nodes: addresses, links that fail, and connections from node to node.

A link is one direction between two nodes. While it is cut, frames of its connections wait, as TCP would send
them again, and arrive when it has healed, unless somebody gave the connection up: both ends may keep a
connection that works in neither direction. A link that refuses answers an attempt to connect at once.

Within a connection frames keep their order. Across connections they do not, and a request whose sender gave
up may still arrive, after its repetition.
"""

from collections import deque
from typing import TYPE_CHECKING

from headrace.node.connection import Connection
from headrace.node.effects import Hangup, Send
from headrace.node.peers import Peer, Unanswered

if TYPE_CHECKING:
    from headrace.simulator.host import Host
    from headrace.simulator.world import World

SIZE_BYTES = 4
RETRY_S = 0.05  # until what waits for a link tries again


class Network:
    def __init__(self, world: "World") -> None:
        self._world = world
        self._listeners: dict[tuple[str, int], tuple[Host, str]] = {}
        self._cut: set[tuple[int, int]] = set()  # links, by the ids of their nodes
        self._severed: set[tuple[int, int]] = set()  # cut, whatever else happens to them
        self._refusing: set[tuple[int, int]] = set()
        self._slow: dict[tuple[int, int], float] = {}  # seconds that each frame takes longer
        self._lingering: dict[tuple[int, int], float] = {}  # and each request, once its connection is open
        self.exhausted: set[int] = set()  # nodes without a descriptor or a port for another connection
        self._wires: dict[tuple[int, int, str], PeerWire] = {}  # by sender, peer and lane

    # --- addresses ------------------------------------------------------------------------------------

    def listen(self, address: tuple[str, int], host: "Host", listener: str) -> None:
        self._listeners[address] = (host, listener)

    def find(self, address: tuple[str, int]) -> "tuple[Host, str] | None":
        """The host that listens there, and the name of the listener; whether it is up is another question."""
        return self._listeners.get(address)

    # --- faults -----------------------------------------------------------------------------------------

    def cut(self, source: int, target: int) -> None:
        self._cut.add((source, target))

    def sever(self, links: list[tuple[int, int]]) -> None:
        """Cut all these links and no others, until the next call: `mend` does not join them."""
        self._severed = set(links)

    def refuse(self, source: int, target: int) -> None:
        """New connections are refused, and those that exist break."""
        self._refusing.add((source, target))
        self.reset(source, target)

    def slow_down(self, source: int, target: int, seconds: float) -> None:
        self._slow[source, target] = seconds

    def mend(self, source: int, target: int) -> None:
        """The link is well again."""
        self._cut.discard((source, target))
        self._refusing.discard((source, target))
        self._slow.pop((source, target), None)

    def heal(self) -> None:
        """All links are well again."""
        self._cut.clear()
        self._severed.clear()
        self._refusing.clear()
        self._slow.clear()
        self._lingering.clear()
        self.exhausted.clear()

    def linger(self, source: int, target: int, seconds: float) -> None:
        """Requests that leave from now on take so much longer, also when their sender is gone by then. New
        connections are as quick as before: what leaves on those after this has ended overtakes them.
        """
        self._lingering[source, target] = seconds

    def request_delay(self, source: int, target: int) -> float:
        return self.delay(source, target) + self._lingering.get((source, target), 0.0)

    def is_cut(self, source: int, target: int) -> bool:
        return (source, target) in self._cut or (source, target) in self._severed

    def cannot_open(self, source: int, target: int) -> bool:
        """Nothing comes back for now: a link is cut, or nobody accepts the connection."""
        return target in self.exhausted or self.is_cut(source, target) or self.is_cut(target, source)

    def is_refused(self, source: int, target: int) -> bool:
        return (source, target) in self._refusing

    def delay(self, source: int, target: int) -> float:
        return self._world.short_delay() + self._slow.get((source, target), 0.0)

    def reset(self, source: int, target: int) -> None:
        """Connections from one node to another break."""
        for wire in list(self._wires.values()):
            if (wire.source.id, wire.peer.id) == (source, target):
                wire.reset()

    def reset_some(self, source: int) -> None:
        """Connections of a node to its peers break, each with the same chance."""
        for wire in list(self._wires.values()):
            if wire.source.id == source and self._world.chance(0.5):
                wire.reset()

    # --- what nodes ask for ---------------------------------------------------------------------------

    def send(self, source: "Host", effect: Send) -> None:
        key = (source.id, effect.peer.id, effect.lane)
        wire = self._wires.get(key)
        if wire is not None and wire.peer != effect.peer:
            self.hang_up(source, Hangup(effect.peer.id, effect.lane))
            wire = None
        if wire is None:
            wire = self._wires[key] = PeerWire(self, self._world, source, effect.peer)
        wire.send(effect.ticket, effect.frame)

    def hang_up(self, source: "Host", effect: Hangup) -> None:
        wire = self._wires.pop((source.id, effect.peer_id, effect.lane), None)
        if wire is not None:
            wire.give_up()

    def went_down(self, source: "Host") -> None:
        """Its process is gone, and the system closes its connections."""
        for key in [key for key in self._wires if key[0] == source.id]:
            self._wires.pop(key).sender_died()

    def forget(self, wire: "PeerWire") -> None:
        for key, one in self._wires.items():
            if one is wire:
                del self._wires[key]
                return


class PeerWire:
    """One connection from a node to another. The receiving host knows it as it knows those of clients."""

    def __init__(self, network: Network, world: "World", source: "Host", peer: Peer) -> None:
        self.source = source
        self.peer = peer
        self._network = network
        self._world = world
        self._node = source.node  # its process: another one that is started later hears nothing
        self._connection: Connection | None = None
        self._target: Host | None = None
        self._sent: deque[bytes] = deque()  # frames that have not arrived yet
        self._inbox: deque[bytearray] = deque()  # arrived, not yet read by the node
        self._answers: deque[bytes] = deque()  # that have not arrived yet
        self._tickets: dict[int, None] = {}
        self._has_sender = True  # the sender still wants it
        self._is_moving = False
        self._is_returning = False
        self._muted_until = 0.0
        world.after(network.delay(source.id, peer.id), self._open)

    # --- the sender's end -----------------------------------------------------------------------------

    def send(self, ticket: int, frame: bytes) -> None:
        self._tickets[ticket] = None
        self._sent.append(frame)
        self._move()

    def give_up(self) -> None:
        """The sender wants no answer any more; what it has sent may still arrive."""
        self._lose(Unanswered.LOST)
        self._world.after(self._network.delay(self.source.id, self.peer.id), self._hang_up)

    def sender_died(self) -> None:
        self._has_sender = False
        self._tickets.clear()
        self._world.after(self._network.delay(self.source.id, self.peer.id), self._hang_up)

    def reset(self) -> None:
        """The connection is gone at both ends, with everything that is under way."""
        self._sent.clear()
        self._answers.clear()
        self._inbox.clear()
        self._network.forget(self)
        self._lose(Unanswered.LOST)
        self._hang_up()

    def _lose(self, why: Unanswered) -> None:
        if not self._has_sender:
            return
        self._has_sender = False
        tickets, self._tickets = list(self._tickets), {}
        for ticket in tickets:
            self._world.after(0.0, lambda ticket=ticket: self._tell(ticket, why))  # type: ignore[misc]

    def _tell(self, ticket: int, answer: "memoryview | Unanswered") -> None:
        if self.source.node is self._node:
            self.source.peer_answered(ticket, answer)

    # --- on the way -----------------------------------------------------------------------------------

    def _open(self) -> None:
        if not self._has_sender:
            return
        source, target = self.source.id, self.peer.id
        if self._network.is_refused(source, target):
            self._refuse()
        elif source in self._network.exhausted:  # which says nothing about the peer
            self._network.forget(self)
            self._lose(Unanswered.LOST)
        elif self._network.cannot_open(source, target):
            self._world.after(RETRY_S, self._open)
        else:
            found = self._network.find((self.peer.host, self.peer.port))
            if found is not None:
                self._target = found[0]
                self._connection = found[0].accept(self, found[1], f"node-{source}")
            if self._connection is None:
                self._refuse()
            else:
                self._move()

    def _refuse(self) -> None:
        self._network.forget(self)
        self._lose(Unanswered.REFUSED)

    def _move(self) -> None:
        """The next frame is on its way to the peer."""
        if self._is_moving or self._connection is None or not self._sent:
            return
        self._is_moving = True
        self._world.after(self._network.request_delay(self.source.id, self.peer.id), self._arrive)

    def _arrive(self) -> None:
        self._is_moving = False
        if self._connection is None or not self._sent:
            return
        if self._network.is_cut(self.source.id, self.peer.id):
            self._is_moving = True
            self._world.after(RETRY_S, self._arrive)
            return
        self._inbox.append(bytearray(self._sent.popleft()[SIZE_BYTES:]))
        self._pump()
        self._move()

    def _return(self) -> None:
        self._is_returning = False
        if not self._answers or not self._has_sender:
            return
        if self._network.is_cut(self.peer.id, self.source.id):
            self._is_returning = True
            self._world.after(RETRY_S, self._return)
            return
        frame = memoryview(self._answers.popleft())[SIZE_BYTES:]
        ticket = int.from_bytes(frame[:4])
        if ticket in self._tickets:
            del self._tickets[ticket]
            self._tell(ticket, frame)
        self._send_back()

    def _send_back(self) -> None:
        if not self._is_returning and self._answers:
            self._is_returning = True
            self._world.after(self._network.delay(self.peer.id, self.source.id), self._return)

    # --- the receiver's end ---------------------------------------------------------------------------

    def _pump(self) -> None:
        while self._inbox and self._connection is not None and not self._connection.is_full:
            wait = self._muted_until - self._world.mono
            if wait > 0:
                self._world.after(wait, self._pump)
                return
            assert self._target is not None
            self._target.received(self, self._connection, self._inbox.popleft())

    def mute(self, until: float) -> None:
        self._muted_until = max(self._muted_until, until)

    def answered(self, frame: bytes) -> None:
        self._answers.append(frame)
        self._send_back()
        if self._inbox:
            self._world.after(0.0, self._pump)

    def broke(self) -> None:
        """The receiver is gone, or closed the connection: the sender hears of it when its link works."""
        self._connection = None
        self._inbox.clear()
        self._sent.clear()
        self._notice_end()

    def _notice_end(self) -> None:
        if not self._has_sender:
            return
        if self._network.is_cut(self.peer.id, self.source.id):
            self._world.after(RETRY_S, self._notice_end)
            return
        self._world.after(self._world.short_delay(), self._hear_of_end)

    def _hear_of_end(self) -> None:
        self._network.forget(self)
        self._lose(Unanswered.LOST)

    def _hang_up(self) -> None:
        if self._network.is_cut(self.source.id, self.peer.id) and self._connection is not None:
            self._world.after(RETRY_S, self._hang_up)
            return
        if self._sent and self._connection is not None:  # what was sent before still arrives
            self._world.after(RETRY_S, self._hang_up)
            return
        connection, self._connection = self._connection, None
        if connection is not None and self._target is not None:
            self._target.hung_up(connection)
