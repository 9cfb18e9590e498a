"""The same little client over each driver, so that a test is written once: it asks, and waits for answers."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import uvloop

from harness.scripted_peer import PATIENCE_S
from headrace.base.time import NEVER, Instant
from headrace.client.aio.driver import Driver as LoopDriver
from headrace.client.cluster import Address, Cluster
from headrace.client.network.reachability import Reachability
from headrace.client.session import Answer, Outgoing, RequestQueue
from headrace.client.settings.network import NetworkSettings
from headrace.client.threads.driver import Driver as ThreadDriver
from headrace.protocol.messages.metadata import MetadataRequest


class Asking:
    """A session that asks what it is told to and keeps the answers."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.reachability = Reachability()
        self.request_queue = RequestQueue()
        self.answers: dict[int, Answer] = {}
        self.on_answer: Callable[[Answer], None] | None = None
        self._count = 0

    def ask(self, question: Any = None, *, to: Address | None = None, **options: Any) -> int:
        self._count += 1
        number = self._count

        def then(now: Instant, answer: Answer) -> None:
            assert number not in self.answers, "answered twice"
            if self.on_answer is not None:
                self.on_answer(answer)
            self.answers[number] = answer

        options.setdefault("timeout_s", PATIENCE_S)
        self.request_queue.post(to, question or MetadataRequest(), then, **options)
        return number

    def requests(self, now: Instant) -> list[Outgoing]:
        return self.request_queue.take()

    def answered(self, now: Instant, ticket: int, answer: Answer) -> None:
        self.request_queue.answered(now, ticket, answer)

    def deadline(self) -> Instant:
        return NEVER


class Carrier(ABC):
    """A session and its driver."""

    driver: ThreadDriver | LoopDriver

    def __init__(self) -> None:
        self.session = Asking()

    @abstractmethod
    def start(self, settings: NetworkSettings, after_turn: Callable[[], object] | None) -> None: ...

    @abstractmethod
    def begin(self, question: Any = None, **options: Any) -> int:
        """Asks without waiting for the answer."""

    @abstractmethod
    def wait_until(self, done: Callable[[], bool], timeout_s: float) -> bool: ...

    @abstractmethod
    def close(self) -> None: ...

    def ask(self, question: Any = None, **options: Any) -> Answer:
        return self.answer(self.begin(question, **options))

    def answer(self, number: int) -> Answer:
        answers = self.session.answers
        assert self.wait_until(lambda: number in answers, PATIENCE_S), "no answer, and no error either"
        return answers[number]


class ThreadCarrier(Carrier):
    driver: ThreadDriver

    def start(self, settings: NetworkSettings, after_turn: Callable[[], object] | None = None) -> None:
        self.driver = ThreadDriver(self.session, settings, name="tested", after_turn=after_turn)
        self.driver.start()

    def begin(self, question: Any = None, **options: Any) -> int:
        with self.driver.lock:
            number = self.session.ask(question, **options)
        self.driver.wake()
        return number

    def wait_until(self, done: Callable[[], bool], timeout_s: float) -> bool:
        with self.driver.lock:
            return self.driver.wait_until(done, timeout_s)

    def close(self) -> None:
        self.driver.close()


class LoopCarrier(Carrier):
    """Its loop runs only while a test waits."""

    driver: LoopDriver
    new_loop = staticmethod(asyncio.new_event_loop)

    def start(self, settings: NetworkSettings, after_turn: Callable[[], object] | None = None) -> None:
        self.runner = asyncio.Runner(loop_factory=self.new_loop)

        async def start() -> None:
            self.driver = LoopDriver(self.session, settings, name="tested", after_turn=after_turn)
            self.driver.start()

        self.runner.run(start())

    def begin(self, question: Any = None, **options: Any) -> int:
        async def ask() -> int:
            number = self.session.ask(question, **options)
            self.driver.wake()
            return number

        return self.runner.run(ask())

    def wait_until(self, done: Callable[[], bool], timeout_s: float) -> bool:
        return self.runner.run(self.driver.wait_until(done, timeout_s))

    def close(self) -> None:
        with self.runner:
            self.runner.run(self.driver.close())


class UvloopCarrier(LoopCarrier):
    new_loop = staticmethod(uvloop.new_event_loop)
