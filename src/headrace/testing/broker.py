"""A real broker for tests: `with Broker() as broker:` and any Kafka client can talk to it.

In memory and in the test's own process unless told otherwise. What a test does with topics goes over its port
like everything else; clock and faults reach the node directly.
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
from headrace.testing.expectations import Expectation, Found
from headrace.testing.faults import Faults
from headrace.testing.fixture_files import read_records, recorded, write_recording
from headrace.testing.hosts import Host, HostFailed, ProcessHost, ThreadHost
from headrace.testing.records import Given, Record, as_record
from headrace.testing.topics import Topics

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
    """What a broker held at one moment; `restore` takes it back there, as often as wanted."""

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
        """Settings have Kafka's names; topics are names, or names with numbers of partitions. `path` is
        where storage="disk" lies; without it, a temporary directory. `process` puts it beside the test.
        """
        if storage not in ("memory", "disk"):
            raise ValueError(f"storage is 'memory' or 'disk', not {storage!r}")
        if path is not None and storage != "disk":
            raise ValueError("a path is for storage='disk'")
        self.settings = _checked(
            DEFAULTS | {key: setting_text(value) for key, value in (settings or {}).items()}
        )
        self._topics = _partitions_of(topics)
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
        """Ready for clients when it returns."""
        if self._host is not None:
            raise HostFailed("the broker runs already")
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
        """For good; data under a `path` of yours stays."""
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
        """What clients call `bootstrap.servers`."""
        self._running()
        return self._bootstrap

    @property
    def registry_url(self) -> str:
        """What clients call `schema.registry.url`: the broker's own registry, as empty as it was at first
        after every reset.
        """
        url: str = self._call("registry_url")
        return url

    @property
    def is_started(self) -> bool:
        """Between `start` and `stop`; a broker that a test has killed is started, too."""
        return self._host is not None

    def reset(self, topics: Mapping[str, int] | Iterable[str] | None = None) -> None:
        """As new, behind the same address: connections are cut, topics, groups, faults, snapshots and
        shifts of the clock are gone. The topics it was made with are there again, or those given.
        """
        if topics is not None:
            self._topics = _partitions_of(topics)
        self._resets += 1
        self._call("reset")
        self._create_topics()

    def snapshot(self) -> Snapshot:
        """Remember everything it holds: topics, records, groups' offsets."""
        return Snapshot(self._call("snapshot"), self._resets)

    def restore(self, snapshot: Snapshot) -> None:
        """Everything as it was then; connections are cut, as by a restart."""
        if snapshot.resets != self._resets:
            raise ValueError("the snapshot was taken before the broker was reset, which forgot it")
        self._call("restore", snapshot=snapshot.number)

    def log(self) -> list[str]:
        """What the broker had to say since it was new or reset, from its `log_level` upwards."""
        lines: list[str] = self._call("log_lines")
        return lines

    def _call(self, method: str, /, **arguments: object) -> Any:
        return self._running().call(method, **arguments)

    def _running(self) -> Host:
        if self._host is None:
            raise HostFailed("the broker does not run: use it in a with statement, or call start()")
        return self._host

    # --- topics and records -----------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, **configs: object) -> None:
        """Configs with underscores for dots: `create_topic("users", cleanup_policy="compact")`."""
        told = {key.replace("_", "."): setting_text(value) for key, value in configs.items()}
        self._at_port().create(name, partitions, told)

    def delete_topic(self, name: str) -> None:
        self._at_port().delete(name)

    def topics(self) -> list[str]:
        return self._at_port().names()

    def produce_all(self, topic: str, records: Iterable[Given], *, timeout: float = 10.0) -> int:
        """Write records, each a value, a (key, value) pair or a `Record`; returns when all are written, and
        raises when one is not within that time.
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
        """All records that are there now. With a group: what it has not read yet, committed as read."""
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
        """Wait until the topic holds exactly these records, and give them; AssertionError with a diff if it
        does not in time.

        With a group: until the group has committed exactly these as read. A value alone is compared with
        the value, a pair with key and value, a `Record` also with what else it says. In order, unless the
        topic has several partitions.
        """
        at_port = self._at_port()
        what = f"topic {topic!r}" if group is None else f"what group {group!r} has read of {topic!r}"
        expectation = Expectation(what, list(expected), in_order=in_order)

        def look() -> Found:
            partitions = at_port.partitions(topic)
            if not partitions:
                return Found(0, [])
            if group is None:
                return Found(partitions, at_port.read(topic, isolation))
            return Found(partitions, at_port.read_by(group, topic, isolation))

        return expectation.await_from(look, timeout)

    def seed(self, topic: str, source: str | PathLike[str], *, key: str | None = None) -> int:
        """Fill a topic from a file: .jsonl (a value a line), .csv or .parquet (a row becomes a JSON object).
        `key` names the field or column that is the record's key.
        """
        return self._at_port().write(topic, read_records(Path(source), key))

    def record(self, topic: str, target: str | PathLike[str]) -> int:
        """Keep a topic's records in a file of JSON lines, in the form of `headrace consume --json`."""
        found = self.consume_all(topic)
        write_recording(Path(target), found)
        return len(found)

    def replay(self, source: str | PathLike[str], topic: str, *, keep_partitions: bool = True) -> int:
        """Write a recording to a topic, with its keys, headers, timestamps and, if wanted, partitions."""
        return self._at_port().write(topic, recorded(Path(source), keep_partitions=keep_partitions))

    def _at_port(self) -> Topics:
        return Topics(self.bootstrap_servers)

    def _create_topics(self) -> None:
        for name, partitions in self._topics.items():
            self.create_topic(name, partitions)


def _partitions_of(topics: Mapping[str, int] | Iterable[str]) -> dict[str, int]:
    return dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics, 1)


def _checked(texts: dict[str, str]) -> dict[str, str]:
    """ValueError for a wrong value, and for a key that nobody knows: who misspells a setting tests without
    it.
    """
    try:
        unknown = Settings.parse(texts).unknown
    except InvalidConfig as error:
        raise ValueError(str(error)) from None
    for key, meant in unknown.items():
        raise ValueError(f"there is no setting {key!r}" + (f": perhaps {meant!r} was meant" if meant else ""))
    return texts


def setting_text(value: object) -> str:
    """As Kafka writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
