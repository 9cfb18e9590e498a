"""The child process that compares schemas: there while it is needed, and ended when it takes too long."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headrace.machines.http.messages import HttpRequest
from headrace.machines.schema_registry.errors import RegistryError
from headrace.machines.schema_registry.registry import Registry
from headrace.server import schema_worker
from headrace.server.registry_rest import Answer
from headrace.server.schema_worker import SchemaWorker, Superseded, learn

COUNT = 40_000  # two lists of other values, each compared with each: minutes


def register(subject: str, text: str, kind: str = "AVRO") -> HttpRequest:
    body = json.dumps({"schema": text, "schemaType": kind}).encode()
    return HttpRequest("POST", f"/subjects/{subject}/versions", body)


def endless(first: int) -> HttpRequest:
    return register("endless", json.dumps({"enum": list(range(first, first + COUNT))}), "JSON")


class RegistryWithWorker:
    """A registry whose schemas are compared in a child process, as the server has it."""

    def __init__(self) -> None:
        self.worker = SchemaWorker()
        self.registry = Registry()

    @classmethod
    def run(cls, story: Callable[[RegistryWithWorker], Coroutine[Any, Any, None]]) -> None:
        registry = cls()

        async def whole() -> None:
            try:
                await story(registry)
            finally:
                registry.worker.stop()

        asyncio.run(whole())

    async def compare(self) -> asyncio.Task[Answer]:
        """A comparison that is under way and takes minutes."""
        await self.ask(endless(0))
        asking = asyncio.create_task(self.ask(endless(COUNT)))
        await asyncio.sleep(0.05)
        return asking

    async def ask(self, request: HttpRequest) -> Answer:
        decided = await self.worker.answer(self.worker.prepare(self.registry, request))
        for record in decided.records:
            self.worker.heard(record)
            assert learn(self.registry, record) is None
        return decided

    @property
    def child(self) -> subprocess.Popen[bytes] | None:
        worker = self.worker._worker
        return None if worker is None else worker._process


def test_a_child_learns_what_is_new() -> None:
    async def story(registry: RegistryWithWorker) -> None:
        assert json.loads((await registry.ask(register("a", '"int"'))).body)["id"] == 1
        first = registry.child
        assert json.loads((await registry.ask(register("b", '"long"'))).body)["id"] == 2
        assert (await registry.ask(register("a", '"string"'))).status == 409  # as `a` is known to it
        assert registry.child is first
        registry.worker.forget()
        assert json.loads((await registry.ask(register("c", '"bytes"'))).body)["id"] == 3

    RegistryWithWorker.run(story)


def test_what_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(registry: RegistryWithWorker) -> None:
        await registry.ask(endless(0))
        child = registry.child
        assert child is not None
        monkeypatch.setattr(schema_worker, "WORK_S_MAX", 0.1)
        with pytest.raises(RegistryError, match=r"took more than 0.1 s") as raised:
            await registry.ask(endless(COUNT))
        assert raised.value.code == 50002  # which the client gets with status 500
        assert child.poll() is not None, "it goes on although nobody waits for it"
        monkeypatch.setattr(schema_worker, "WORK_S_MAX", 60.0)
        assert (await registry.ask(register("after", '"int"'))).status == 200

    RegistryWithWorker.run(story)


def test_a_caller_that_goes_away_ends_it() -> None:
    """As when its connection's time is over."""

    async def story(registry: RegistryWithWorker) -> None:
        asking = await registry.compare()
        child = registry.child
        assert child is not None
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert child.poll() is not None

    RegistryWithWorker.run(story)


def test_a_registry_that_became_another_one_is_asked_about_again() -> None:
    async def story(registry: RegistryWithWorker) -> None:
        asking = await registry.compare()
        registry.worker.forget()
        with pytest.raises(Superseded):
            await asking

    RegistryWithWorker.run(story)
