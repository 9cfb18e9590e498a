"""What a controller does first when it is elected."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.base.time import Now
from headrace.machines.metadata.controller.decision import MetadataDecision
from headrace.node.metadata_log import MetadataLog
from headrace.protocol.metadata_records import RegisterBrokerRecord
from headrace.simulator.manual_host import ManualHost
from headrace.storage.errors import DiskFull


def test_features_and_its_own_broker_are_one_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a node starts with one flush."""
    propose, decisions = MetadataLog.propose, []

    def seen(self: MetadataLog, now: Now, decision: MetadataDecision[Any]) -> int:
        decisions.append((self.end_offset, decision.records))
        return propose(self, now, decision)

    monkeypatch.setattr(MetadataLog, "propose", seen)
    host = ManualHost()
    ((offset, records),) = decisions
    (registered,) = [record for record in records if isinstance(record, RegisterBrokerRecord)]
    assert not registered.fenced
    assert registered.broker_epoch == offset + records.index(registered)
    assert host.node.broker.lifecycle.epoch == registered.broker_epoch
    host.advance(60)
    assert len(decisions) == 1, "and a single node has nothing more to say"


def test_when_its_disk_is_full_it_decides_later(monkeypatch: pytest.MonkeyPatch) -> None:
    propose, failures = MetadataLog.propose, [DiskFull("no space")]

    def full(self: MetadataLog, now: Now, decision: MetadataDecision[Any]) -> int:
        if failures and decision.records:
            raise failures.pop()
        return propose(self, now, decision)

    monkeypatch.setattr(MetadataLog, "propose", full)
    host = ManualHost()
    assert not host.node.is_ready
    host.advance(1.1)
    assert host.node.is_ready
