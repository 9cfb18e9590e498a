"""A real broker for users' own tests: in memory, in the test's process, with a clock and faults to script.

`Broker` is all that most tests need; with pytest, the fixtures `headrace_broker` and
`headrace_broker_factory` come by themselves. See docs/testing.md.

Names are loaded when they are first asked for: pytest imports this package at the start of every run, also of
those in which nobody needs a broker.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.testing.broker import Broker, Snapshot
    from headrace.testing.clocks import Clock
    from headrace.testing.faults import ActiveFault, Faults
    from headrace.testing.fixture_files import BadFixture
    from headrace.testing.hosts import HostFailed
    from headrace.testing.records import Record
    from headrace.testing.site import BrokerDown
    from headrace.testing.topics import GroupHasMembers

_HOMES = {
    "ActiveFault": "faults",
    "BadFixture": "fixture_files",
    "Broker": "broker",
    "BrokerDown": "site",
    "Clock": "clocks",
    "Faults": "faults",
    "GroupHasMembers": "topics",
    "HostFailed": "hosts",
    "Record": "records",
    "Snapshot": "broker",
}

__all__ = [
    "ActiveFault",
    "BadFixture",
    "Broker",
    "BrokerDown",
    "Clock",
    "Faults",
    "GroupHasMembers",
    "HostFailed",
    "Record",
    "Snapshot",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
