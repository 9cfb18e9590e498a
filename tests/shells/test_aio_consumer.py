"""What only asyncio's consumer has: other tasks, cancellation, coroutines as listeners and callbacks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from harness.wait import WAIT_S
from headrace import Closed, InvalidInput, Message, TopicPartition, WokenUp
from headrace.aio import Consumer
from headrace.testing import Broker

ORDERS = TopicPartition("orders", 0)


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, WAIT_S))


@pytest.fixture
def servers(headrace_broker: Broker) -> str:
    headrace_broker.create_topic("orders")
    headrace_broker.produce_all("orders", ["first", "second", "third"])
    return headrace_broker.bootstrap_servers


def member(servers: str, **settings: Any) -> Consumer:
    return Consumer(servers, **{"group_id": "billing", "auto_offset_reset": "earliest"} | settings)


async def under_way(call: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    task = asyncio.create_task(call)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return task


def test_one_poll_at_a_time(servers: str) -> None:
    async def story() -> None:
        async with Consumer(servers) as consumer:
            consumer.assign({ORDERS: 3})
            waiting = await under_way(consumer.poll())
            with pytest.raises(InvalidInput, match="during a poll"):
                await consumer.poll(0)
            assert await consumer.end_offsets([ORDERS]) == {ORDERS: 3}  # other calls may be made
            consumer.wakeup()
            with pytest.raises(WokenUp):
                await waiting
            consumer.seek(ORDERS, 0)
            assert len(await consumer.poll(WAIT_S)) == 3

    run(story())


def test_a_cancelled_poll_loses_nothing(servers: str) -> None:
    async def story() -> None:
        async with member(servers) as consumer:
            consumer.subscribe("orders")
            found: list[Message] = []
            while len(found) < 3:
                waiting = await under_way(consumer.poll())
                for _ in range(len(found)):
                    await asyncio.sleep(0)
                waiting.cancel()
                try:
                    found += await waiting
                except asyncio.CancelledError:
                    found += await consumer.poll(0.01, max_records=1)
            assert [message.value for message in found] == [b"first", b"second", b"third"]

    run(story())


def test_closing_ends_what_other_tasks_wait_for(servers: str) -> None:
    async def story() -> None:
        consumer = member(servers)
        consumer.subscribe("orders")
        seen: list[bytes] = []

        async def iterate() -> None:
            async for message in consumer:
                seen.append(message.value)

        iterating = asyncio.create_task(iterate())
        while len(seen) < 3:
            await asyncio.sleep(0.001)
        await consumer.close()
        await iterating
        with pytest.raises(Closed):
            await consumer.poll()
        async with member(servers) as again:
            assert (await again.committed([ORDERS]))[ORDERS].offset == 3  # type: ignore[union-attr]

    run(story())


def test_listeners_and_callbacks_may_be_coroutines(servers: str) -> None:
    told: list[Any] = []

    async def on_assign(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        told.append(await consumer.committed(partitions))
        consumer.seek(partitions[0], 1)
        with pytest.raises(InvalidInput):
            await consumer.close()

    async def on_revoke(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        told.append((await consumer.commit())[ORDERS].offset)

    async def committed(offsets: Any, error: Any) -> None:
        await asyncio.sleep(0)
        told.append((offsets[ORDERS].offset, error))

    async def story() -> None:
        async with member(servers, enable_auto_commit=False) as consumer:
            consumer.subscribe("orders", on_assign=on_assign, on_revoke=on_revoke)
            assert [message.value for message in await consumer.poll(WAIT_S)] == [b"second", b"third"]
            consumer.commit_async({ORDERS: 2}, committed)
            assert (await consumer.commit({ORDERS: 1}))[ORDERS].offset == 1
        assert told == [{ORDERS: None}, (2, None), 3]

    run(story())


def test_a_listener_that_fails(servers: str) -> None:
    calls: list[list[TopicPartition]] = []

    async def on_assign(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        calls.append(partitions)
        if len(calls) == 1:
            raise RuntimeError("no")

    async def story() -> None:
        async with member(servers) as consumer:
            consumer.subscribe("orders", on_assign=on_assign)
            with pytest.raises(RuntimeError, match="no"):
                await consumer.poll(WAIT_S)
            assert len(await consumer.poll(WAIT_S)) == 3
            assert calls == [[ORDERS], [ORDERS]]

    run(story())


def test_a_block_that_is_cancelled_does_not_commit_what_it_had_not_handled(servers: str) -> None:
    async def work(began: asyncio.Event) -> None:
        async with member(servers) as consumer:
            consumer.subscribe(["orders"])
            async for _ in consumer:
                began.set()
                await asyncio.sleep(WAIT_S)

    async def story() -> None:
        began = asyncio.Event()
        working = asyncio.create_task(work(began))
        await began.wait()
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        async with member(servers) as consumer:
            consumer.subscribe(["orders"])
            first, *_ = await consumer.poll(WAIT_S)
            assert first.value == b"first"

    run(story())


def test_a_listener_that_was_cancelled_is_called_again(servers: str) -> None:
    """It may not have sought yet: what is read must not begin elsewhere because a poll had a timeout."""

    async def story() -> None:
        calls: list[str] = []

        async def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            calls.append("assigned")
            if len(calls) == 1:
                await asyncio.sleep(WAIT_S)
            for at in partitions:
                consumer.seek(at, 2)

        async def revoked(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            calls.append("revoked")
            if calls.count("revoked") == 1:
                await asyncio.sleep(WAIT_S)
            await consumer.commit(dict.fromkeys(partitions, 1))

        async with member(servers, enable_auto_commit=False) as consumer:
            consumer.subscribe(["orders"], on_assign=assigned, on_revoke=revoked)
            await cancelled_when(lambda: bool(calls), consumer.poll())
            assert [message.value for message in await consumer.poll(WAIT_S)] == [b"third"]
            await cancelled_when(lambda: "revoked" in calls, consumer.unsubscribe())
            await consumer.unsubscribe()
            assert calls == ["assigned", "assigned", "revoked", "revoked"]
            assert (await consumer.committed([ORDERS]))[ORDERS] == (1, -1, "")

    run(story())


async def cancelled_when(is_far_enough: Callable[[], bool], call: Coroutine[Any, Any, Any]) -> None:
    task = asyncio.create_task(call)
    while not is_far_enough():
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
