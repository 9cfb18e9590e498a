"""Which calls that can wait for the file system a real node makes in the thread of its event loop.

`ARCHITECTURE.md` ("Disk calls of the event loop") lists those that are left, with what they cost. The test
fails when another one appears, or when a thing that has become a job is done by the loop again.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from headrace import Admin, Consumer, NewTopic, Producer, Resource
from headrace.node.node import Node
from headrace.node.settings import Settings
from headrace.server.disk import RealDisk
from headrace.server.logs import Log
from headrace.server.process import Process

AUDITED = {
    "open",
    "os.link",
    "os.listdir",
    "os.mkdir",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.scandir",
    "os.truncate",
}


class Watch:
    """Notes what one thread asks of the files below a directory. Python cannot remove an audit hook, so that
    it stays, and does nothing while nobody watches.
    """

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._thread = 0
        self.calls: list[tuple[str, str]] = []

    @contextmanager
    def watching(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """This thread."""
        self._thread = threading.get_ident()
        with monkeypatch.context() as patch:
            for name in ("fsync", "fdatasync"):  # they have no audit event
                patch.setattr(os, name, self._noting(name, getattr(os, name)))
            sys.addaudithook(self._audited)
            yield
        self._thread = 0

    def _noting(self, name: str, call: Callable[[int], None]) -> Callable[[int], None]:
        def noted(descriptor: int) -> None:
            if threading.get_ident() == self._thread:
                self._note(name, os.readlink(f"/proc/self/fd/{descriptor}"))
            call(descriptor)

        return noted

    def _audited(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in AUDITED and threading.get_ident() == self._thread:
            path = arguments[0]
            if isinstance(path, bytes):
                path = path.decode()
            if not isinstance(path, str):
                path = os.readlink(f"/proc/self/fd/{path}")
            if event == "open":
                event = "create" if arguments[2] & os.O_CREAT else "open"
            self._note(event.removeprefix("os."), path)

    def _note(self, event: str, path: str) -> None:
        if path.startswith(self._root):
            self.calls.append((event, kind_of(path.removeprefix(self._root))))

    def take(self) -> set[str]:
        """What was asked since the last time, each kind of thing once."""
        calls, self.calls = self.calls, []
        return {f"{event} {path}" for event, path in calls}


def kind_of(path: str) -> str:
    """The name without what differs from file to file; … for the directory of a partition."""
    name = path.rpartition("/")[2]
    return "…" if re.search(r"-\d+(\.|$)", name) else re.sub(r"\d{20}", "…", name)


# Every five seconds a log with new records gets a recovery point, whatever else happens.
RECOVERY_POINT = {
    "create ….snapshot",
    "open ….snapshot",
    "open ….txnindex",
    "remove ….snapshot",
    "truncate ….snapshot",
}
FIRST_RECORD = {
    "create .headrace_files.tmp",
    "create leader-epoch-checkpoint.tmp",
    "create ….index",
    "create ….log",
    "create ….timeindex",
    "open .headrace_files",
    "open leader-epoch-checkpoint",
    "rename .headrace_files.tmp",
    "rename leader-epoch-checkpoint.tmp",
    "truncate .headrace_files.tmp",
    "truncate leader-epoch-checkpoint.tmp",
}
OPENED = {"create partition.metadata", "listdir …", "mkdir …", "open .headrace_files"}
ROLL = {
    "create .headrace_files",
    "create ….index",
    "create ….log",
    "create ….timeindex",
    "open ….next.log.tmp",
    "rename ….next.index.tmp",
    "rename ….next.log.tmp",
    "rename ….next.timeindex.tmp",
}
SEGMENTS_GO = {
    "create .headrace_files.tmp",
    "create leader-epoch-checkpoint.tmp",
    "open .headrace_files",
    "open ….index",
    "open ….timeindex",
    "rename .headrace_files.tmp",
    "rename leader-epoch-checkpoint.tmp",
    "rename ….index",
    "rename ….log",
    "rename ….snapshot",
    "rename ….timeindex",
    "rename ….txnindex",
    "truncate .headrace_files.tmp",
    "truncate leader-epoch-checkpoint.tmp",
}

# What is left, in each part of the story, besides recovery points.
LEFT: dict[str, set[str]] = {
    "create topics": OPENED,
    "first records": OPENED | FIRST_RECORD,
    "produce": set(),
    "recovery point": set(),
    "roll": ROLL,
    "groups": OPENED | FIRST_RECORD,
    "groups again": set(),
    "transactions": OPENED | FIRST_RECORD,
    "transactions again": set(),
    "delete records": SEGMENTS_GO,
    "retention": ROLL | SEGMENTS_GO,
    "delete topics": {"rename …"},
}


def settings(directory: Path) -> Settings:
    return Settings.parse(
        {
            "node.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(directory),
            "log.segment.delete.delay.ms": "0",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
    )


def produce(bootstrap: str, topic: str, count: int) -> None:
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        for _ in range(count):
            producer.send(topic, bytes(100_000)).get()


def transact(bootstrap: str, topic: str) -> None:
    with Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"}) as producer:
        for _ in range(2):
            with producer.transaction():
                producer.send(topic, b"x")


def consume(bootstrap: str, topic: str) -> None:
    """One more record, and a commit."""
    produce(bootstrap, topic, 1)
    settings = {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    with Consumer(settings) as consumer:
        consumer.subscribe([topic])
        while not consumer.poll(1.0):
            pass
        consumer.commit()


class Story:
    """What clients and administrators do, and what the loop asks of the file system for that."""

    def __init__(self, process: Process, watch: Watch, directory: Path) -> None:
        self._process = process
        self._watch = watch
        self._directory = directory
        self.found: dict[str, set[str]] = {}

    async def part(self, name: str, act: Callable[..., object], *arguments: Any) -> None:
        """In another thread."""
        await asyncio.to_thread(act, *arguments)
        self._take(name)

    async def awaits(self, name: str, condition: Callable[[], bool]) -> None:
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.01)
        self._take(name)

    async def housekeeping(self, name: str) -> None:
        node = cast(Node, self._process.node)
        node.broker.housekeeping.look_after_all(self._process.clock.now())
        self._process.driver.settle()
        await asyncio.to_thread(lambda: None)
        self._take(name)

    def _take(self, name: str) -> None:
        self.found.setdefault(name, set()).update(self._watch.take())

    def files(self, pattern: str) -> int:
        return len(list((self._directory / "plain-0").glob(pattern)))

    async def play(self) -> None:
        at = self._process.bootstrap
        self._watch.take()
        with Admin({"bootstrap.servers": at}) as admin:
            plain = NewTopic("plain", configs={"segment.bytes": str(1 << 20)})
            await self.part("create topics", admin.create_topics, [plain, "other"])
            await self.part("first records", produce, at, "plain", 1)
            await self.part("first records", produce, at, "other", 1)
            await self.part("produce", produce, at, "plain", 3)
            await self.housekeeping("recovery point")
            await self.awaits("recovery point", lambda: self.files("*.tmp") == 3)  # of the next segment
            await self.part("produce", produce, at, "plain", 3)
            await self.part("roll", produce, at, "plain", 8)
            await self.part("groups", consume, at, "other")
            await self.part("groups again", consume, at, "other")
            await self.part("transactions", transact, at, "other")
            await self.part("transactions again", transact, at, "other")
            await self.part("delete records", admin.delete_records, {("plain", 0): 12})
            assert await asyncio.to_thread(self.files, "*.log") == 1
            await self.part("roll", produce, at, "plain", 10)
            assert await asyncio.to_thread(self.files, "*.log") == 2
            await self.part(
                "retention", admin.alter_configs, {Resource.topic("plain"): {"retention.bytes": "1"}}
            )
            await self.housekeeping("retention")
            await self.awaits("retention", lambda: self.files("*.log") == 1)
            await self.part("delete topics", admin.delete_topics, ["plain", "other"])
            await self.awaits("delete topics", lambda: not self._directory.joinpath("plain-0").exists())


def test_the_loop_asks_little_of_the_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> dict[str, set[str]]:
        process = Process(settings(tmp_path / "data"), log=Log("error"))
        watch = Watch(tmp_path)
        await process.start()
        try:
            with watch.watching(monkeypatch):
                story = Story(process, watch, tmp_path / "data")
                await story.play()
                return story.found
        finally:
            await process.stop()

    found = asyncio.run(run())
    new = {name: sorted(calls - LEFT[name] - RECOVERY_POINT) for name, calls in found.items()}
    assert {name: calls for name, calls in new.items() if calls} == {}


def test_calls_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the thread that is watched, and below the directory that is watched."""
    watch = Watch(tmp_path / "inside")
    disk = RealDisk(str(tmp_path / "inside"))
    outside = RealDisk(str(tmp_path / "outside"))

    def use(disk: RealDisk) -> None:
        disk.make_dir("t-0")
        with closing(disk.open("t-0/00000000000000000007.log", create=True)) as file:
            file.append(b"x")
            file.truncate(0)
            file.sync()
        disk.rename("t-0/00000000000000000007.log", "t-0/x")
        disk.remove("t-0/x")
        disk.sync_dir("t-0")
        disk.list("t-0")

    with watch.watching(monkeypatch):
        use(outside)
        other = threading.Thread(target=use, args=(disk,))
        other.start()
        other.join()
        assert watch.take() == set()
        use(disk)
        assert watch.take() == {
            "create ….log",
            "fdatasync ….log",
            "fsync …",
            "listdir …",
            "mkdir …",
            "open …",
            "remove x",
            "rename ….log",
            "truncate ….log",
        }
