"""What a controller answers to every request on its listener, when all is well and when it is not.

`every_node_request.txt` has the answers of an active controller that works, of one whose peers may do
nothing, of one whose disk is full or has failed, and of a voter without a leader. A change of it is read in
review; HEADRACE_RECORD=1 writes it again.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from harness.authorizers import Nobody
from harness.recorded_answers import VALUES, fill, readable, requests
from harness.remote_broker import CONTROLLER_ALONE, RemoteBroker
from headrace.node.effects import Report
from headrace.protocol.messages.broker_registration import BrokerRegistrationRequest
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.notation import Request
from headrace.simulator.manual_host import ManualHost
from headrace.storage.disk import Disk
from headrace.storage.faulty_disk import Fail, Fault, FaultyDisk
from headrace.storage.memory_disk import MemoryDisk

RECORDED = Path(__file__).with_name("every_node_request.txt")
API_VERSIONS, ENVELOPE = 18, 58  # a list of the others, and one of them in another
# By key: values of fields that lead further than to the first check.
QUORUM = {"topic": "__cluster_metadata", "topic_name": "__cluster_metadata"}
FURTHER: dict[int, dict[str, Any]] = {
    1: {**QUORUM, "topic_id": bytes(15) + b"\1", "last_fetched_epoch": 0, "current_leader_epoch": 1},
    19: {"name": "new", "configs": [], "assignments": []},
    33: {"name": "retention.ms", "value": "1000"},
    37: {"count": 2, "broker_ids": 1},
    43: {"election_type": 1},
    44: {"name": "retention.ms", "value": "1000"},
    52: {**QUORUM, "replica_epoch": 2, "last_offset_epoch": 1, "last_offset": 9},
    53: {**QUORUM, "leader_epoch": 2},
    54: {**QUORUM, "leader_epoch": 2, "preferred_successors": 7},
    55: QUORUM,
    56: {"leader_epoch": 0},
    57: {"feature": "transaction.version", "upgrade_type": 1, "allow_downgrade": False},
    59: {"name": "__cluster_metadata", "current_leader_epoch": 1, "max_bytes": 1_000},
    60: {"endpoint_type": 2},
    62: {"name": "PLAINTEXT", "port": 9092, "host": "h", "log_dirs": b"\2" * 16},
}
TWO_VOTERS = "7@127.0.0.1:9093,8@127.0.0.1:9094"


class State:
    def __init__(self, disk: Disk | None = None, **settings: str) -> None:
        texts = CONTROLLER_ALONE | {key.replace("_", "."): value for key, value in settings.items()}
        self.host = ManualHost(texts, disks={"data": disk or MemoryDisk()})
        self.epoch = -1
        self.topic_id = bytes(16)

    def with_a_broker(self) -> State:
        broker = RemoteBroker(self.host, 1)
        broker.register()
        broker.beat()
        self.epoch = broker.epoch
        wanted = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        (created,) = self.host.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=1000), 7).topics
        self.topic_id = bytes(created.topic_id)
        return self

    @property
    def values(self) -> dict[str, Any]:
        return {
            **VALUES,
            "topic_id": self.topic_id,
            "topic_ids": bytes(16),
            "broker_id": 1,
            "broker_epoch": self.epoch,
            "new_isr": 1,
            "cluster_id": self.host.node.directories.cluster_id,
            "incarnation_id": b"\1" * 16,
            "current_metadata_offset": 0,
            "voter_id": 7,
            "replica_id": 8,
            "leader_id": 8,
            "voted_id": 8,
            "feature": "metadata.version",
            "rack": None,
        }


def well() -> State:
    return State().with_a_broker()


def without_rights() -> State:
    state = well()
    state.host.node.access.authorizer = Nobody()
    return state


def full() -> State:
    return _failing(errno.ENOSPC)


def offline() -> State:
    return _failing(errno.EIO)


def _failing(code: int) -> State:
    disk = FaultyDisk(MemoryDisk())
    state = State(disk).with_a_broker()
    disk.faults = [Fault(Fail(code), "append", times=1_000_000)]
    return state


def without_a_leader() -> State:
    return State(controller_quorum_voters=TWO_VOTERS)


STATES: list[Callable[[], State]] = [well, without_rights, full, offline, without_a_leader]


def answer(state: State, kind: type[Request], version: int) -> str:
    host = state.host
    host.effects.clear()
    connection = host.connect()
    request = fill(kind, version, state.values | FURTHER.get(kind.KEY, {}))
    if isinstance(request, BrokerRegistrationRequest):
        request.features = RemoteBroker(host, 2).registration().features
    host.send(connection, request, version)
    for _ in range(20):
        if (found := host.receive(connection)) is not None:
            break
        if connection.id in host.closed:
            return "the connection is closed"
        host.advance(0.1)
    reports = [effect.event for effect in host.effects if isinstance(effect, Report)]
    assert "internal_error" not in reports, (kind, version)
    told = "" if found is None else readable(found, state.topic_id)
    told = re.sub(r"records=b(['\"]).{60,}?\1(?=[,)])", "records=…", told)
    told = re.sub(r"configs=\[CreatableTopicConfigs.*?\]", "configs=[…]", told)
    events = sorted({event for event in reports if event not in ("quorum_leader",)})
    return f"{told or 'not answered within 2 s'}{f' ({chr(44).join(events)})' if events else ''}"


def lines() -> Iterator[str]:
    for make_state in STATES:
        yield f"=== {make_state.__name__}"
        served = make_state().host.node.routes.advertised("CONTROLLER")
        kinds = requests({key for key, _, _ in served})
        for key, lowest, highest in served:
            if key in (API_VERSIONS, ENVELOPE):
                continue
            answers = [(answer(make_state(), kinds[key], one), one) for one in range(lowest, highest + 1)]
            for text, group in groupby(answers, key=lambda each: each[0]):
                same = [version for _, version in group]
                yield f"{kinds[key].__name__} {same[0]}-{same[-1]}: {text}"


def test_every_request_of_a_node_is_answered_as_recorded() -> None:
    found = list(lines())
    if os.environ.get("HEADRACE_RECORD"):
        RECORDED.write_text("\n".join(found) + "\n")
        pytest.fail("recorded: read the difference")
    assert found == RECORDED.read_text().splitlines()
