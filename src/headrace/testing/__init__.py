"""Testing kit: a real broker for users' own tests, in memory, with a clock to move and faults to inject.

Most tests need only `Broker`, or with pytest the fixtures `headrace_broker` and `headrace_broker_factory`,
which the plugin provides. `Cluster`, or the fixture `headrace_cluster`, has several nodes, which a test can
kill, pause and cut off from each other. See docs/testing.md.

Names are imported at their first use: pytest imports this package at the start of every run, also if no test
needs a broker.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.testing.broker import Broker, Snapshot
    from headrace.testing.clocks import Clock
    from headrace.testing.cluster import Cluster
    from headrace.testing.faults import ActiveFault, Faults
    from headrace.testing.fixture_files import BadFixture
    from headrace.testing.hosts import HostFailed
    from headrace.testing.node_processes import NodeFailed
    from headrace.testing.records import Record
    from headrace.testing.restartable_broker import BrokerDown
    from headrace.testing.topics import GroupHasMembers

_HOMES = {
    "ActiveFault": "faults",
    "BadFixture": "fixture_files",
    "Broker": "broker",
    "BrokerDown": "restartable_broker",
    "Clock": "clocks",
    "Cluster": "cluster",
    "Faults": "faults",
    "GroupHasMembers": "topics",
    "HostFailed": "hosts",
    "NodeFailed": "node_processes",
    "Record": "records",
    "Snapshot": "broker",
}

__all__ = [
    "ActiveFault",
    "BadFixture",
    "Broker",
    "BrokerDown",
    "Clock",
    "Cluster",
    "Faults",
    "GroupHasMembers",
    "HostFailed",
    "NodeFailed",
    "Record",
    "Snapshot",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
