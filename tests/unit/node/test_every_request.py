"""What a node answers to every request in every version, when all is well and when it is not.

`every_request.txt` has the answers of a node that works, of one whose clients may do nothing, of one without
coordinators, and of one whose log directory has failed. A change of it is read in review; HEADRACE_RECORD=1
writes it again.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

import pytest

from harness.authorizers import Nobody
from harness.node_groups import SETTINGS, commit, find
from harness.node_transactions import Producer
from harness.recorded_answers import BATCH, VALUES, fill, readable, requests
from headrace.node.effects import Report
from headrace.node.routes import SERVED
from headrace.protocol.notation import Request
from headrace.simulator.manual_host import ManualHost
from headrace.storage.disk import Disk
from headrace.storage.faulty_disk import Fail, Fault, FaultyDisk
from headrace.storage.memory_disk import MemoryDisk

RECORDED = Path(__file__).with_name("every_request.txt")

PRODUCE, API_VERSIONS = 0, 18
REFUSED = {(PRODUCE, 0), (PRODUCE, 1), (PRODUCE, 2)}  # advertised for old clients
# Those change nothing that another answer could show, so that they can share a node.
READING = {
    *(1, 2, 9, 12, 13, 14, 15, 16, 23, 29, 32, 35, 41, 46, 48, 50, 55, 60, 61, 65, 66, 69, 74, 75),
    *(30001, 30013),
}


def a_host(disks: dict[str, Disk] | None = None) -> ManualHost:
    places = {"log.dirs": "data", "metadata.log.dir": "meta"}
    settings = {**SETTINGS, **places, "transaction.state.log.num.partitions": "1"}
    host = ManualHost(settings, disks=disks or {"meta": MemoryDisk(), "data": MemoryDisk()})
    host.create_topic("t")
    return host


def well(disks: dict[str, Disk] | None = None) -> ManualHost:
    host = a_host(disks)
    find(host, "g")
    Producer(host)
    assert commit(host, "g", "t", 1) == 0
    host.ask(host.produce_request("t", BATCH), 9)
    return host


def without_rights() -> ManualHost:
    host = well()
    host.node.access.authorizer = Nobody()
    return host


def without_coordinators() -> ManualHost:
    return a_host()


def offline() -> ManualHost:
    disk = FaultyDisk(MemoryDisk())
    host = well({"meta": MemoryDisk(), "data": disk})
    disk.faults = [Fault(Fail(errno.EIO), "append", times=1_000_000)]
    host.ask(host.produce_request("t", BATCH), 9)
    assert host.node.directories["data"].is_offline
    return host


STATES: list[Callable[[], ManualHost]] = [well, without_rights, without_coordinators, offline]


def answer(host: ManualHost, kind: type[Request], version: int) -> str:
    topic_id = host.partitions("t")[0].topic_id
    values = {**VALUES, "topic_id": topic_id, "topic_ids": bytes(16)}
    host.effects.clear()
    connection = host.connect()
    host.send(connection, fill(kind, version, values), version)
    for _ in range(100):
        if (found := host.receive(connection)) is not None:
            break
        host.advance(0.1)
    assert connection.id not in host.closed, host.closed
    assert found is not None, "it is not answered"
    reports = [effect.event for effect in host.effects if isinstance(effect, Report)]
    assert "internal_error" not in reports
    return readable(found, topic_id)


def lines() -> Iterator[str]:
    kinds = requests(SERVED)
    for make_host in STATES:
        yield f"=== {make_host.__name__}"
        shared = make_host()
        for key, (lowest, highest) in SERVED.items():
            if key == API_VERSIONS:
                continue  # a list of what is below
            versions = [one for one in range(lowest, highest + 1) if (key, one) not in REFUSED]
            is_shared = key in READING or make_host is without_rights
            answers = [
                (answer(shared if is_shared else make_host(), kinds[key], version), version)
                for version in versions
            ]
            for text, group in groupby(answers, key=lambda each: each[0]):
                same = [version for _, version in group]
                yield f"{kinds[key].__name__} {same[0]}-{same[-1]}: {text}"


def test_every_request_is_answered_as_recorded() -> None:
    found = list(lines())
    if os.environ.get("HEADRACE_RECORD"):
        RECORDED.write_text("\n".join(found) + "\n")
        pytest.fail("recorded: read the difference")
    assert found == RECORDED.read_text().splitlines()
