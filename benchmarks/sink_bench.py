"""CPU time of each call of the node while a sink commits: `python -m benchmarks.sink_bench [tasks]`.

A node in memory. All attempts are open, with some partitions each; then one request commits all of them, and
the clock moves until their markers are written.
"""

import gc
import sys
import time
from dataclasses import replace
from typing import Any

from headrace.machines.coordination import Decision
from headrace.machines.sinks import sink_records
from headrace.machines.sinks.sink import Attempt
from headrace.machines.sinks.sinks import Sinks
from headrace.protocol.messages.commit_sink import CommitSinkRequest, CommittedAttempt
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.join_sink import JoinSinkRequest
from headrace.server.garbage_collection import freeze_start
from headrace.simulator.manual_host import ManualHost

PARTITIONS = 4
BATCHES = 3


class Timed:
    """Stands before the node, and takes the time of each call."""

    def __init__(self, node: Any) -> None:
        self._node = node
        self.calls: list[tuple[float, str]] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._node, name)
        if name not in ("handle", "wake", "completed"):
            return found

        def call(*arguments: Any) -> Any:
            began = time.process_time()
            try:
                return found(*arguments)
            finally:
                self.calls.append((time.process_time() - began, name))

        return call

    def report(self, what: str) -> None:
        longest = ", ".join(f"{name} {each * 1e3:.1f}" for each, name in sorted(self.calls, reverse=True)[:4])
        total = sum(each for each, _ in self.calls)
        print(f"{what}: {len(self.calls)} calls, {total * 1e3:.1f} ms; the longest: {longest}")


def open_attempts(host: ManualHost, shard: Any, batch_id: int, count: int) -> list[tuple[int, int]]:
    """One joins as usual. To have the others ask would take minutes: their records are written together."""
    joined = host.ask(
        JoinSinkRequest(app_id="app", query_id="q", run_id="r", batch_id=batch_id, timeout_ms=600_000), 0
    )
    assert joined.error_code == 0, joined
    (sink,) = shard.machine.sinks()
    attempts = dict(sink.attempts)
    for task in range(1, count):
        producer_id = 1_000_000 * (batch_id + 1) + task
        places = frozenset(("out", index) for index in range(PARTITIONS))
        attempts[producer_id] = Attempt(producer_id, 0, task, 0, partitions=places)
    shard.carry_out(
        host.clock.now(), Decision(records=sink_records.written(sink, replace(sink, attempts=attempts)))
    )
    (sink,) = shard.machine.sinks()
    return [each.producer for each in sink.open_attempts]


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    Sinks.check = lambda self: None  # type: ignore[method-assign]  # after each call it would look at all
    host = ManualHost()
    host.create_topic("out", PARTITIONS)
    host.ask(FindCoordinatorRequest(key_type=100, coordinator_keys=["app"]), 4)
    host.advance(5)
    host.node = timed = Timed(host.node)  # type: ignore[assignment]
    shard: Any = host.node.broker.sinks.shard_of(host.clock.now(), "app")
    for batch_id in range(BATCHES):
        producers = open_attempts(host, shard, batch_id, count)
        log = shard.partition.log
        before, began = log.size_bytes, host.clock.now().mono
        attempts = [CommittedAttempt(producer_id=each[0], producer_epoch=each[1]) for each in producers]
        request = CommitSinkRequest(
            app_id="app", query_id="q", run_id="r", batch_id=batch_id, attempts=attempts
        )
        gc.collect()
        freeze_start()  # as in a process that serves
        timed.calls.clear()
        answer = host.ask(request, 0)
        assert answer.error_code == 0, answer
        timed.report(f"{count} tasks, until the answer")
        while any(sink.attempts for sink in shard.machine.sinks()):
            host.advance(0.001)
        timed.report("  until all markers are written")
        passed, size = host.clock.now().mono - began, log.size_bytes - before
        print(f"  pauses of {passed * 1e3:.1f} ms, {size / 1e6:.2f} MB of log")


if __name__ == "__main__":
    main()
