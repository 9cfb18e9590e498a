"""The demo's players and the order in which they act: set up, two kills with -9, and to the last window.

    three brokers ── generator ── pipeline (Spark) ── table's writer

Whoever waits here also looks: at each tick a sample is taken, the status is shown, and somebody who ended
though nobody killed him ends the demo.
"""

import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from demo_counts import COUNTS, DEAD, REJECTED, Counts, in_table
from demo_generator import Generator
from demo_processes import Program, ProgramEnded
from demo_screen import Screen
from demo_watch import Kill, Sample, Watch

import headrace
from headrace.cli.local_cluster import LocalCluster
from headrace.sample.clicks import CLICKS, IMPRESSIONS, SampleClicks, Truth, truth

HERE = Path(__file__).resolve().parent
BROKERS = 3  # topics have a replica on each, and a write needs two
PARTITIONS = 3
TICK_S, GLANCE_S = 0.25, 0.02
PATIENCE_S = 300.0  # so long nothing may change before the demo gives up
AWAY_S = 3.0  # so long the driver stays dead
IN_BATCH_S = 30.0  # so long a kill waits for tasks that write
RESTARTS_MAX = 5  # of a pipeline that ended by itself, as Spark does on a machine that is very busy
# For a JVM that lives a minute or two on two cores: one quick compiler, and a collector without threads.
SHORT_LIFE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# The generator's clock waits for a pipeline that is behind by this share of all events: however slow a
# machine is, both kills come in the middle.
LAG_SHARE_MAX = 0.25


class Stuck(Exception):
    """Nothing changes any more; the message says what was waited for, and which logs may know."""


@dataclass(slots=True, frozen=True)
class Size:
    """How much is shown, and how fast the generator's clock runs."""

    minutes: int  # of events
    speed: float  # event seconds per second
    impressions_per_s: float


# Counts leave the pipeline when no more clicks can come for them, 13 minutes later: the demo must be longer.
WHOLE = Size(minutes=30, speed=20.0, impressions_per_s=40.0)
FAST = Size(minutes=20, speed=60.0, impressions_per_s=10.0)


class Stage:
    """Everybody who plays, and the order in which they do; the stack ends whoever is still there."""

    def __init__(self, stack: ExitStack, screen: Screen, directory: Path, size: Size, seed: int) -> None:
        self.stack = stack
        self.screen = screen
        self.directory = directory
        self.size = size
        # near the present, since brokers delete old records, and in the past as a whole
        start_ms = (int(time.time()) // 60 - 2 * size.minutes) * 60_000
        self.clicks = SampleClicks(seed=seed, start_ms=start_ms, impressions_per_s=size.impressions_per_s)
        self.brokers = LocalCluster(directory, BROKERS, 0, {}, {})
        self.table = directory / "clicks.db"
        self.restarts = 0

    def set_up(self) -> None:
        self.stack.callback(self.brokers.stop)
        began_at = time.monotonic()
        self.brokers.start()
        ready_s = time.monotonic() - began_at
        self.servers = servers = self.brokers.bootstrap
        self.admin = self.stack.enter_context(headrace.Admin(servers))
        for topic in (IMPRESSIONS, CLICKS, COUNTS, REJECTED, DEAD):
            self.admin.create_topic(topic, partitions=PARTITIONS)
        self.screen.say(
            f"1. Three brokers are one cluster, {ready_s:.1f} s after their start: {servers}.\n"
            "   Each record is on all of them; a write is acknowledged when two have it."
        )

        seconds = self.size.minutes * 60
        self.generator = Generator(servers, self.clicks, seconds=seconds, speed=self.size.speed)
        self.stack.callback(self.generator.stop)
        self.truth: Truth = truth(self.generator.events)
        self.screen.say(
            f"2. A generator publishes {len(self.generator.events):,} events of {self.size.minutes} minutes, "
            f"{self.size.speed:.0f} times as fast as they happen.\n"
            "   Some clicks come twice, late, out of order, from robots, or are not JSON at all."
        )
        self.driver = self._program("the pipeline", "pipeline.py", "--checkpoints", "checkpoints")
        self.writer = self._program(
            "the table's writer", "to_database.py", "--database", f"sqlite:{self.table}"
        )
        self.counts = self.stack.enter_context(Counts(servers))
        self.driver.start()
        self.writer.start()
        self.generator.start()
        self.watch = self.stack.enter_context(Watch(servers, self.generator, self.counts))
        self.screen.say(
            "3. Spark counts clicks per ad and minute, exactly once; the counts go to a topic and to SQLite."
        )

    def _program(self, name: str, script: str, *options: str) -> Program:
        java = os.environ.get("JDK_JAVA_OPTIONS", "")
        temporary = self.directory / "tmp"
        temporary.mkdir(exist_ok=True)
        program = Program(
            name,
            [sys.executable, str(HERE / script), "--servers", self.servers, *options],
            self.directory / f"{Path(script).stem}.log",
            cwd=self.directory,
            environment={
                # what a killed JVM leaves behind goes with the rest
                "TMPDIR": str(temporary),
                "SPARK_LOCAL_DIRS": str(temporary),
                "JDK_JAVA_OPTIONS": f'{java} "-Djava.io.tmpdir={temporary}"',
            },
        )
        self.stack.callback(program.stop)
        return program

    def kill_broker(self) -> Kill:
        self._watch_until(
            lambda now: now.batch >= 1 and self.generator.progress >= 0.35, "the pipeline's first batches"
        )
        batch = self._open_batch()
        leader = self.admin.describe_topic(CLICKS).partitions[0].leader
        victim = self.brokers.nodes[(leader or 1) - 1]
        victim.kill()
        kill = self._killed("broker", batch)
        self.screen.say(
            f"4. kill -9 of broker {victim.node_id}, one of three, at {clock_text(kill.at_s)}, "
            f"in batch {batch}.",
            fg="red",
        )
        self._watch_until(lambda now: now.batch >= batch, "a batch without the broker")
        self.screen.say(f"   The others have taken over: batch {batch} is counted.")
        victim.launch()
        victim.await_ready()
        self._watch_until(lambda _: self._is_in_sync(), "the broker's replicas")
        kill.back_s = self.watch.now_s
        self.screen.say("   The broker was started again, and has all that it missed.")
        return kill

    def _is_in_sync(self) -> bool:
        """Whether all replicas of all partitions have all records."""
        return all(
            set(partition.isr) == set(partition.replicas)
            for topic in self.admin.list_topics()
            for partition in topic.partitions
        )

    def kill_driver(self) -> Kill:
        before = self.watch.last.batch
        self._watch_until(
            lambda now: now.batch > before and self.generator.progress >= 0.7,
            "batches after the broker's restart",
        )
        batch = self._open_batch()
        processes = self.driver.kill()
        kill = self._killed("driver", batch)
        self.screen.say(
            f"5. kill -9 of the Spark driver ({processes} processes) at {clock_text(kill.at_s)}, "
            f"in batch {batch}.",
            fg="red",
        )
        self._watch_for(AWAY_S)
        self.driver.start()
        self._watch_until(lambda now: now.batch >= batch, "the new driver's first batch")
        kill.back_s = self.watch.now_s
        self.screen.say(
            f"   A new driver has counted batch {batch} after {kill.back_s - kill.at_s - AWAY_S:.0f} s."
        )
        return kill

    def _killed(self, victim: str, batch: int) -> Kill:
        return Kill(victim, self.watch.now_s, self.generator.clock_ms, batch)

    def finish(self) -> None:
        self._watch_until(lambda _: self.generator.is_done, "the generator")
        self.generator.publish_closing_events()
        expected = len(self.truth.counts)
        self._watch_until(lambda now: now.windows >= expected and now.lag == 0, "the last windows")
        self._watch_until(lambda _: self.watch.has_read_all("ad-clicks-rejected"), "the late clicks")
        self._watch_until(lambda now: len(in_table(self.table)) >= now.windows, "the table")
        self.driver.stop()
        self.counts.read_to_end(PATIENCE_S)  # also what should not be there
        self.writer.stop()
        self.screen.say(
            f"6. All clicks are counted, {clock_text(self.watch.now_s)} after the start, "
            f"in {self.watch.last.batch + 1} batches."
        )

    def _watch_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        self._watch_until(lambda _: time.monotonic() >= until, "the clock")

    def _open_batch(self) -> int:
        """Waits until tasks are writing; the number of the batch that a kill would hit."""
        until = time.monotonic() + IN_BATCH_S
        self._watch_until(
            lambda now: now.open_batch is not None or time.monotonic() >= until, "a batch", tick_s=GLANCE_S
        )
        now = self.watch.last
        return now.batch + 1 if now.open_batch is None else now.open_batch

    def _watch_until(self, is_enough: Callable[[Sample], bool], what: str, *, tick_s: float = TICK_S) -> None:
        """Looks and shows until it is so; fails if somebody ends or nothing changes any more."""
        changed_at = time.monotonic()
        before = self.watch.last
        while not is_enough(now := self.watch.look()):
            self.generator.is_held = now.lag > LAG_SHARE_MAX * len(self.generator.events)
            self.screen.status(self._status(now))
            self.generator.check()
            self.writer.check()
            if self._restarted_pipeline() or _news(now) != _news(before):
                changed_at, before = time.monotonic(), now
            if time.monotonic() - changed_at > PATIENCE_S:
                raise Stuck(
                    f"Nothing has changed for {PATIENCE_S:.0f} s while waiting for {what}; "
                    f"see {self.driver.log} and {self.brokers.first.log_path}."
                )
            time.sleep(tick_s)

    def _restarted_pipeline(self) -> bool:
        """Whether it had ended and was started again, as anybody would do who runs one; not for ever."""
        try:
            self.driver.check()
            return False
        except ProgramEnded:
            if self.restarts == RESTARTS_MAX:
                raise
            self.restarts += 1
            self.screen.say(
                f"   The pipeline ended by itself ({self.driver.log} says why) and is started again."
            )
            self.driver.start()
            return True

    def _status(self, now: Sample) -> str:
        batch = f"batch {now.batch}" if now.batch >= 0 else "Spark starts"
        return (
            f"   {clock_text(now.at_s)}  {now.published:,} events published · lag {now.lag:,} · "
            f"{batch} · {now.windows:,} of {len(self.truth.counts):,} windows"
        )


def _news(sample: Sample) -> tuple[int, ...]:
    """What changes as long as somebody works."""
    return sample.published, sample.lag, sample.batch, sample.windows


def clock_text(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
