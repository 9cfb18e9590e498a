"""A real broker for tests: `with Broker() as broker:`, and any Kafka client can use it.

By default it runs in memory and in the test's own process. The helpers for topics are clients of its port;
clock and faults act on the node directly.
"""

import shutil
import tempfile
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from headrace.machines.configs.values import InvalidConfig
from headrace.node.settings import Settings
from headrace.testing.clocks import Clock
from headrace.testing.faults import Faults
from headrace.testing.fixture_files import read_records, recorded, write_recording
from headrace.testing.hosts import Host, HostFailed, ProcessHost, ThreadHost
from headrace.testing.records import Given, Record, as_record
from headrace.testing.topics import Topics, await_consumed

StorageKind = Literal["memory", "disk"]
Isolation = Literal["read_committed", "read_uncommitted"]

# Kafka's defaults but for what makes tests wait or needs more than one broker. Topics and metadata lie in
# different directories, so that a test can break the one without the other.
DEFAULTS = {
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "log.dirs": "topics",
    "metadata.log.dir": "metadata",
    "connections.max.idle.ms": "-1",  # a moved clock would find every connection idle
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


class Snapshot:
    """The state of a broker at one time; `restore` returns to it, as often as you like."""

    __slots__ = ("number", "resets")

    def __init__(self, number: int, resets: int) -> None:
        self.number = number
        self.resets = resets  # of the broker, when it was taken: a reset forgets all snapshots


class Broker:
    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        topics: Mapping[str, int] | Iterable[str] = (),
        storage: StorageKind = "memory",
        path: str | PathLike[str] | None = None,
        process: bool = False,
        log_level: str = "warning",
    ) -> None:
        """`settings` have Kafka's names. `topics` are names, or names with numbers of partitions. `path` is
        the directory for storage="disk"; by default a temporary one. `process=True` runs the broker in a
        process of its own.
        """
        if storage not in ("memory", "disk"):
            raise ValueError(f"storage={storage!r}: must be 'memory' or 'disk'")
        if path is not None and storage != "disk":
            raise ValueError("path needs storage='disk'")
        self.settings = checked_settings(
            DEFAULTS | {key: setting_text(value) for key, value in (settings or {}).items()}
        )
        self._topics = partitions_of(topics)
        self._storage = storage
        self._given_path = Path(path) if path is not None else None
        self._temporary: Path | None = None
        self._host_kind = ProcessHost if process else ThreadHost
        self._log_level = log_level
        self._host: Host | None = None
        self._bootstrap = ""
        self._resets = 0
        self.clock = Clock(self._call)
        self.faults = Faults(self._call)

    # --- its life ---------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Starts the broker; returns when clients can connect."""
        if self._host is not None:
            raise HostFailed("the broker is already running")
        directory = None
        if self._storage == "disk":
            if self._given_path is None:
                self._temporary = Path(tempfile.mkdtemp(prefix="headrace-"))
            directory = self._given_path or self._temporary
        host = self._host_kind(self.settings, directory, self._log_level)
        self._bootstrap = host.start()
        self._host = host
        try:
            self._create_topics()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stops the broker. Data in a directory that you passed as `path` stays."""
        host, self._host = self._host, None
        try:
            if host is not None:
                host.stop()
        finally:
            if self._temporary is not None:
                shutil.rmtree(self._temporary, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"Broker({self._bootstrap or 'not started'})"

    @property
    def bootstrap_servers(self) -> str:
        """The address, for the clients' setting `bootstrap.servers`."""
        self._running()
        return self._bootstrap

    @property
    def registry_url(self) -> str:
        """The URL of the broker's schema registry, for the clients' setting `schema.registry.url`. A reset
        empties the registry.
        """
        url: str = self._call("registry_url")
        return url

    @property
    def is_started(self) -> bool:
        """True between `start` and `stop`, also after a test has killed the broker."""
        return self._host is not None

    def reset(self, topics: Mapping[str, int] | Iterable[str] | None = None) -> None:
        """Replaces the broker by an empty one at the same address. Closes connections; removes topics,
        groups, faults and snapshots, and resets the clock. Creates the topics of the constructor again, or
        those given here.
        """
        if topics is not None:
            self._topics = partitions_of(topics)
        self._resets += 1
        self._call("reset")
        self._create_topics()

    def snapshot(self) -> Snapshot:
        """Stores everything that the broker has: topics, records, configs, committed offsets."""
        return Snapshot(self._call("snapshot"), self._resets)

    def restore(self, snapshot: Snapshot) -> None:
        """Returns to a snapshot. Connections are closed, as by a restart."""
        if snapshot.resets != self._resets:
            raise ValueError("the snapshot no longer exists: the broker was reset after it was taken")
        self._call("restore", snapshot=snapshot.number)

    def log(self) -> list[str]:
        """The broker's log lines since its start or last reset, of its `log_level` and above."""
        lines: list[str] = self._call("log_lines")
        return lines

    def _call(self, method: str, /, **arguments: object) -> Any:
        return self._running().call(method, **arguments)

    def _running(self) -> Host:
        if self._host is None:
            raise HostFailed("the broker is not running: use it in a with statement, or call start()")
        return self._host

    # --- topics and records -----------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, **configs: object) -> None:
        """Creates a topic. Write configs with underscores: `create_topic("users",
        cleanup_policy="compact")`.
        """
        told = {key.replace("_", "."): setting_text(value) for key, value in configs.items()}
        self._at_port().create(name, partitions, told)

    def delete_topic(self, name: str) -> None:
        self._at_port().delete(name)

    def topics(self) -> list[str]:
        return self._at_port().names()

    def produce_all(self, topic: str, records: Iterable[Given], *, timeout: float = 10.0) -> int:
        """Writes records, each a value, a (key, value) pair or a `Record`. Returns when all are acknowledged;
        raises an error if one is not within the timeout.
        """
        return self._at_port().write(topic, map(as_record, records), timeout)

    def consume_all(
        self,
        topic: str,
        group: str | None = None,
        *,
        isolation: Isolation = "read_committed",
        timeout: float = 10.0,
    ) -> list[Record]:
        """All records of the topic. With a group: those that it has not read yet; commits their offsets."""
        if group is None:
            return self._at_port().read(topic, isolation, timeout)
        return self._at_port().read_as(group, topic, isolation, timeout)

    def assert_consumed(
        self,
        topic: str,
        expected: Iterable[Given],
        *,
        group: str | None = None,
        in_order: bool | None = None,
        timeout: float = 5.0,
        isolation: Isolation = "read_committed",
    ) -> list[Record]:
        """Waits until the topic has exactly these records, and returns them; raises AssertionError with a
        diff after the timeout.

        With a group: waits until the group has committed offsets after exactly these records. A value is
        compared with the record's value, a pair with key and value, a `Record` with all fields that it sets.
        The order matters, unless the topic has several partitions.
        """
        return await_consumed(self._at_port(), topic, list(expected), group, in_order, timeout, isolation)

    def seed(self, topic: str, source: str | PathLike[str], *, key: str | None = None) -> int:
        """Writes the records of a file to a topic: .jsonl (one value per line), .csv or .parquet (each row
        becomes a JSON object). `key` names the field or column that is the record's key.
        """
        return self._at_port().write(topic, read_records(Path(source), key))

    def record(self, topic: str, target: str | PathLike[str]) -> int:
        """Writes a topic's records to a file of JSON lines, in the format of `headrace consume --json`."""
        found = self.consume_all(topic)
        write_recording(Path(target), found)
        return len(found)

    def replay(self, source: str | PathLike[str], topic: str, *, keep_partitions: bool = True) -> int:
        """Writes the records of such a file to a topic, with keys, headers, timestamps and partitions."""
        return self._at_port().write(topic, recorded(Path(source), keep_partitions=keep_partitions))

    def _at_port(self) -> Topics:
        return Topics(self.bootstrap_servers)

    def _create_topics(self) -> None:
        for name, partitions in self._topics.items():
            self.create_topic(name, partitions)


def partitions_of(topics: Mapping[str, int] | Iterable[str]) -> dict[str, int]:
    return dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics, 1)


def checked_settings(texts: dict[str, str], also: Mapping[str, str] | None = None) -> dict[str, str]:
    """Raises ValueError for a wrong value and for an unknown key: a test with a misspelt setting would not
    test that setting. `also` are settings that are not known yet, and that have to be there.
    """
    try:
        unknown = Settings.parse(texts | dict(also or {})).unknown
    except InvalidConfig as error:
        raise ValueError(str(error)) from None
    for key, meant in unknown.items():
        raise ValueError(f"unknown setting {key!r}" + (f"; did you mean {meant!r}?" if meant else ""))
    return texts


def setting_text(value: object) -> str:
    """As Kafka writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
