"""Rules and quotas are changed while nodes are killed, cut off and started again (invariant 27).

What was answered with success counts: at once on every broker that nothing is wrong with, and on all nodes
when they are back, however far they were behind: some of them get a snapshot instead of the log. A change
without an answer may count or not, and the same on all nodes.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from harness.simulated_cluster import ClusterClient, SimulatedCluster
from headrace.machines.security.acl_rules import Operation, PatternType, Permission, ResourceType
from headrace.node.connection import Connection
from headrace.node.metadata_log import MetadataLog
from headrace.node.node import Node
from headrace.node.quotas import Quotas
from headrace.node.standard_authorizer import StandardAuthorizer
from headrace.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from headrace.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from headrace.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from headrace.simulator.frames import read_answer

SETTINGS = {
    "authorizer.class.name": "standard",
    "super.users": "User:ANONYMOUS",
    # who was away for a few changes gets a snapshot
    "metadata.log.max.record.bytes.between.snapshots": "500",
    "internal.metadata.log.segment.bytes": "1000",
    "metadata.log.segment.ms": "100",
}
NAMES = [f"n{number}" for number in range(6)]
STEPS = 50
PATIENCE_S = 40.0  # a request is answered, or refused, when nobody is cut off any more
CHANGE_S = 2.0  # so long a change is waited for while something is wrong
CALM_S = 2.0


class Cluster:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.simulated = SimulatedCluster(seed, settings=SETTINGS)
        self.simulated.until(self.simulated.all_ready, PATIENCE_S)
        # what has to be: by kind and name; None: nobody knows
        self.wanted: dict[tuple[str, str], float | None] = {
            (kind, name): 0.0 for kind in ("rule", "quota") for name in NAMES
        }
        self.cut_off: int | None = None
        self.troubled_at = 0.0  # when something was done to a node, or to the network
        self.answered = 0
        self.checked = 0

    @property
    def is_calm(self) -> bool:
        """All that are there had the time to find each other."""
        return self.cut_off is None and self.simulated.world.mono - self.troubled_at > CALM_S

    # --- what happens ------------------------------------------------------------------------------------

    def step(self) -> None:
        acts = (self.kill, self.start, self.cut, self.heal)
        if self.rng.random() < 0.7:
            self.change()
        else:
            self.rng.choice(acts)()
            self.troubled_at = self.simulated.world.mono
        self.simulated.run(self.rng.random())

    def change(self) -> None:
        known = [one for one, value in self.wanted.items() if value is not None]
        if not known:
            return
        kind, name = self.rng.choice(known)
        value = float(self.rng.randrange(2 if kind == "rule" else 5))
        request, version = change_rule(name, value) if kind == "rule" else change_quota(name, value)
        ready = [id for id in self.simulated.up if self.simulated.node(id).is_ready]
        if not ready:
            return
        client = ClusterClient(self.simulated, self.rng.choice(ready))
        client.send(request, version)
        self.simulated.run_until(lambda: bool(client.answers), CHANGE_S)
        # without an answer it may be made at any time, also after later changes
        is_done = bool(client.answers) and is_success(client.answers.pop(), type(request).KEY, version)
        self.wanted[kind, name] = value if is_done else None
        self.answered += is_done
        if is_done and self.is_calm:
            self.check([id for id in self.simulated.unfenced() if id in self.simulated.up])
            self.checked += 1

    def kill(self) -> None:
        if len(self.simulated.up) == 3 and self.cut_off is None:
            self.simulated.hosts[self.rng.choice(self.simulated.up)].kill()

    def start(self) -> None:
        for host in self.simulated.hosts.values():
            host.start()

    def cut(self) -> None:
        if len(self.simulated.up) == 3 and self.cut_off is None:
            self.cut_off = self.rng.choice(self.simulated.up)
            for other in self.simulated.others(self.cut_off):
                self.simulated.network.cut(self.cut_off, other)
                self.simulated.network.cut(other, self.cut_off)

    def heal(self) -> None:
        self.cut_off = None
        self.simulated.network.heal()

    # --- what counts -------------------------------------------------------------------------------------

    def check(self, nodes: list[int], *, is_end: bool = False) -> None:
        """At the end they agree also about changes that nobody has heard of."""
        for (kind, name), value in self.wanted.items():
            found = {id: self.found(self.simulated.node(id), kind, name) for id in nodes}
            assert value is None or set(found.values()) == {value}, (kind, name, value, found)
            assert not is_end or len(set(found.values())) == 1, (kind, name, found)

    def found(self, node: Node, kind: str, name: str) -> float:
        if kind == "rule":
            authorizer = node.access.authorizer
            assert isinstance(authorizer, StandardAuthorizer)
            return float(
                authorizer.rules.allows("User:ada", "127.0.0.1", Operation.READ, ResourceType.TOPIC, name)
            )
        connection = Connection(99, listener="PLAINTEXT", address="127.0.0.1", principal=f"User:{name}")
        meters = node.quotas.of(self.simulated.world.now(), connection, "app")
        return 0.0 if meters is None or meters.produce is None else meters.produce.bound


def is_success(frame: bytes, key: int, version: int) -> bool:
    answer: Any = read_answer(frame, key, version)
    results = {CreateAclsRequest.KEY: "results", DeleteAclsRequest.KEY: "filter_results"}.get(key, "entries")
    return all(one.error_code == 0 for one in getattr(answer, results))


def change_rule(name: str, value: float) -> tuple[Any, int]:
    if value:
        rule = AclCreation(
            resource_type=ResourceType.TOPIC,
            resource_name=name,
            resource_pattern_type=PatternType.LITERAL,
            principal="User:ada",
            host="*",
            operation=Operation.READ,
            permission_type=Permission.ALLOW,
        )
        return CreateAclsRequest(creations=[rule]), 3
    which = DeleteAclsFilter(
        resource_type_filter=ResourceType.TOPIC,
        resource_name_filter=name,
        pattern_type_filter=PatternType.LITERAL,
        principal_filter=None,
        host_filter=None,
        operation=Operation.ANY,
        permission_type=Permission.ANY,
    )
    return DeleteAclsRequest(filters=[which]), 3


def change_quota(name: str, value: float) -> tuple[Any, int]:
    op = OpData(key="producer_byte_rate", value=value, remove=not value)
    entity = [EntityData(entity_type="user", entity_name=name)]
    return AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=[op])]), 1


@pytest.mark.parametrize("seed", range(6))
def test_what_was_answered_counts(seed: int) -> None:
    run(seed)


def test_most_changes_are_looked_at_when_they_are_answered() -> None:
    assert sum(run(seed) for seed in range(3)) > STEPS // 2


def run(seed: int) -> int:
    """How many answers were compared with the brokers at once."""
    cluster = Cluster(seed)
    for _ in range(STEPS):
        cluster.step()
    cluster.heal()
    cluster.start()
    simulated = cluster.simulated
    simulated.until(lambda: simulated.all_ready() and len(simulated.unfenced()) == 3, PATIENCE_S)
    simulated.run(31.0)  # what broker and client waited for is given up
    simulated.until(simulated.agrees, PATIENCE_S)
    cluster.check(simulated.up, is_end=True)
    assert cluster.answered > STEPS // 8
    return cluster.checked


def rules_of_snapshots_are_not_noticed(patch: pytest.MonkeyPatch) -> None:
    committed = StandardAuthorizer.committed
    installed = MetadataLog._installed

    def silently(self: MetadataLog, *given: Any) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(StandardAuthorizer, "committed", lambda *ignored: None)
            installed(self, *given)

    assert committed is StandardAuthorizer.committed
    patch.setattr(MetadataLog, "_installed", silently)


def removed_quotas_stay(patch: pytest.MonkeyPatch) -> None:
    change = Quotas._change
    patch.setattr(Quotas, "_change", lambda self, *given: None if given[-1] is None else change(self, *given))


def answers_do_not_wait_for_brokers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MetadataLog, "is_known", lambda self, offset: True)


@pytest.mark.parametrize(
    "plant",
    [rules_of_snapshots_are_not_noticed, removed_quotas_stay, answers_do_not_wait_for_brokers],
    ids=lambda plant: plant.__name__,
)
def test_a_planted_bug_is_found(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)

    def all_seeds() -> None:
        for seed in range(6):
            run(seed)

    with pytest.raises((AssertionError, ValueError, KeyError)):
        all_seeds()
