"""Long answers leave a piece at a time, one in a turn of the loop; pieces grow with a client that reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from headrace.server.disk import RealDisk
from headrace.server.outbox import FIRST_PIECE_BYTES, UNSENT, WRITING, Outbox
from headrace.storage.disk import Span

PIECE_BYTES = 2 * 1024 * 1024


class Socket:
    """A transport that takes `room` bytes at once, and keeps the rest."""

    def __init__(self, room: int = 1 << 40) -> None:
        self.room = room
        self.sizes: list[int] = []
        self.kept = 0

    def write(self, data: memoryview) -> None:
        self.sizes.append(len(data))
        taken = min(self.room, len(data))
        self.room -= taken
        self.kept += len(data) - taken

    def get_write_buffer_size(self) -> int:
        return self.kept

    def is_closing(self) -> bool:
        return False


class Story:
    def __init__(self, directory: Path, size: int, room: int = 1 << 40) -> None:
        self.soon: list[Callable[[], None]] = []
        self.socket = Socket(room)
        channel: Any = SimpleNamespace(transport=self.socket, holds=0, is_encrypted=False, active_at=0.0)
        channel.hold = lambda reason: setattr(channel, "holds", channel.holds | reason)
        channel.release = lambda reason: setattr(channel, "holds", channel.holds & ~reason)
        self.channel = channel
        connections = SimpleNamespace(
            piece=memoryview(bytearray(PIECE_BYTES)), bytes_out=0, new_piece=lambda: None
        )
        self.outbox = Outbox(
            channel, cast(Any, connections), cast(Any, SimpleNamespace(soon=self.soon.append))
        )
        file = RealDisk(str(directory)).open("records", create=True)
        file.append(bytes(size))
        self.answer: Any = [b"head", Span(file, 0, size)]

    def next_turn(self) -> None:
        due, self.soon[:] = list(self.soon), []
        for call in due:
            call()


class TestPieces:
    def test_one_leaves_in_a_turn_and_the_next_one_is_twice_as_long(self, tmp_path: Path) -> None:
        story = Story(tmp_path, 4 * PIECE_BYTES)
        story.outbox.send(story.answer)
        assert story.socket.sizes == [FIRST_PIECE_BYTES]
        assert story.channel.holds & UNSENT  # what is answered later stays behind it
        story.next_turn()
        assert story.socket.sizes == [FIRST_PIECE_BYTES, 2 * FIRST_PIECE_BYTES]
        for _ in range(10):
            story.next_turn()
        assert max(story.socket.sizes) == PIECE_BYTES
        assert sum(story.socket.sizes) == 4 * PIECE_BYTES + len(b"head")
        assert not story.channel.holds & UNSENT
        assert not story.soon

    def test_a_short_answer_leaves_at_once(self, tmp_path: Path) -> None:
        story = Story(tmp_path, FIRST_PIECE_BYTES // 2)
        story.outbox.send(story.answer)
        assert sum(story.socket.sizes) == FIRST_PIECE_BYTES // 2 + len(b"head")
        assert not story.soon

    def test_they_stay_short_for_a_client_that_does_not_read(self, tmp_path: Path) -> None:
        story = Story(tmp_path, 4 * PIECE_BYTES, room=FIRST_PIECE_BYTES // 2)
        story.channel.hold(WRITING)  # as the socket's transport says it of itself
        story.outbox.send(story.answer)
        assert story.socket.sizes == []
        story.channel.release(WRITING)
        story.outbox.go_on()
        assert story.socket.sizes == [FIRST_PIECE_BYTES]
        story.channel.hold(WRITING)
        story.next_turn()
        assert story.socket.sizes == [FIRST_PIECE_BYTES]

    def test_they_grow_when_what_waited_has_left(self, tmp_path: Path) -> None:
        story = Story(tmp_path, 4 * PIECE_BYTES, room=0)
        story.outbox.send(story.answer)
        story.channel.hold(WRITING)
        story.next_turn()
        story.socket.kept, story.socket.room = 0, 1 << 40
        story.channel.release(WRITING)
        story.outbox.drained()
        assert story.socket.sizes == [FIRST_PIECE_BYTES, 2 * FIRST_PIECE_BYTES]

    def test_nothing_is_sent_after_the_end_of_the_connection(self, tmp_path: Path) -> None:
        story = Story(tmp_path, 4 * PIECE_BYTES)
        story.outbox.send(story.answer)
        story.outbox.close()
        story.next_turn()
        assert story.socket.sizes == [FIRST_PIECE_BYTES]
