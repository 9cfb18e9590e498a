"""A real broker for users' own tests: in memory, in the test's process, with a clock and faults to script.

`Broker` is all that most tests need; with pytest, the fixtures `headrace_broker` and
`headrace_broker_factory` come by themselves. See docs/testing.md.
"""

from headrace.testing.broker import Broker, Snapshot
from headrace.testing.clocks import Clock
from headrace.testing.faults import ActiveFault, Faults
from headrace.testing.fixture_files import BadFixture
from headrace.testing.hosts import HostFailed
from headrace.testing.records import Record
from headrace.testing.site import BrokerDown

__all__ = [
    "ActiveFault",
    "BadFixture",
    "Broker",
    "BrokerDown",
    "Clock",
    "Faults",
    "HostFailed",
    "Record",
    "Snapshot",
]
