"""The network among nodes: what is cut waits, one way or both, and who is down refuses."""

from __future__ import annotations

import gc
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from harness.node_links import NodeLinks

TIMEOUT_S = 30
ROUNDS = 20


def greeting(node: int) -> bytes:
    """The beginning of a node's first request."""
    name = b"node-%d" % node
    return struct.pack(">ihhih", 100, 18, 0, 1, len(name)) + name


class Lines:
    """Node 1 with its two listeners, and connections of other nodes to it."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack
        self.links = stack.enter_context(NodeLinks(1))
        self.servers = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=100)) for _ in range(2)
        ]
        self.links.serve(1, *(server.getsockname()[1] for server in self.servers))
        self.links.up(1)

    def dial(self) -> socket.socket:
        address = ("127.0.0.1", self.links.broker_ports[1])
        return self.stack.enter_context(socket.create_connection(address, TIMEOUT_S))

    def accept(self) -> socket.socket:
        self.servers[0].settimeout(TIMEOUT_S)
        accepted, _ = self.servers[0].accept()
        accepted.settimeout(TIMEOUT_S)
        return self.stack.enter_context(accepted)


@pytest.fixture
def lines() -> Iterator[Lines]:
    with ExitStack() as stack:
        yield Lines(stack)


def exactly(line: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        chunk = line.recv(count - len(found))
        assert chunk, found
        found += chunk
    return found


def test_one_way_is_cut_and_healed(lines: Lines) -> None:
    near = lines.dial()
    near.sendall(greeting(2))
    far = lines.accept()
    assert exactly(far, len(greeting(2))) == greeting(2)
    lines.links.cut([(2, 1)])
    near.sendall(b"late")
    far.sendall(b"at once")
    assert exactly(near, 7) == b"at once"
    far.setblocking(False)
    with pytest.raises(BlockingIOError):
        far.recv(1)
    far.settimeout(TIMEOUT_S)
    lines.links.heal()
    assert exactly(far, 4) == b"late"


def test_others_pass_while_one_is_cut_off(lines: Lines) -> None:
    lines.links.cut([(1, 2)])
    cut, other = lines.dial(), lines.dial()
    cut.sendall(greeting(2))
    other.sendall(greeting(3))
    assert exactly(lines.accept(), len(greeting(3))) == greeting(3)
    lines.links.heal()
    assert exactly(lines.accept(), len(greeting(2))) == greeting(2)


def test_who_is_down_refuses_and_leaves_no_socket_open(lines: Lines) -> None:
    """An open one would fail the test by its ResourceWarning."""
    for _ in range(ROUNDS):
        made = [lines.dial() for _ in range(8)]
        for connection in made[:4]:
            connection.sendall(greeting(2))
        lines.links.down(1)
        with pytest.raises(ConnectionRefusedError):
            lines.dial()
        lines.links.up(1)
    gc.collect()


def test_links_whose_far_end_hangs_up_as_the_node_goes_down_leave_no_socket_open(lines: Lines) -> None:
    """A link that has ended by itself is cancelled before it has cleaned up."""
    for _ in range(5 * ROUNDS):
        for _ in range(4):
            lines.dial().sendall(greeting(2))
        far = [lines.accept() for _ in range(4)]
        for one in far:
            one.close()
        lines.links.down(1)
        gc.collect()
        lines.links.up(1)


def test_nobody_else_takes_the_port_of_a_node_that_is_down(lines: Lines) -> None:
    lines.links.down(1)
    with pytest.raises(ConnectionRefusedError):
        lines.dial()
    with NodeLinks(1) as others:
        mine = {lines.links.broker_ports[1], lines.links.controller_ports[1]}
        assert mine.isdisjoint({others.broker_ports[1], others.controller_ports[1]})
    lines.links.up(1)
    lines.dial().sendall(greeting(2))
    lines.accept()
