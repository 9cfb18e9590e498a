"""What a node asks of the world around it. The server carries these out; the simulator plays with them.

Order matters: effects are carried out as listed. An `Answer` of a connection leaves after those before it.
"""

from dataclasses import dataclass
from typing import Any

from headrace.base.time import Instant
from headrace.node.connection import Connection
from headrace.storage.disk import Span
from headrace.storage.jobs import Job

# A whole frame, size prefix included, as buffers to send one after the other.
Parts = list[bytes | bytearray | memoryview | Span]


@dataclass(slots=True)
class Answer:
    connection: Connection
    parts: Parts


@dataclass(slots=True)
class Close:
    """End the connection, unsent answers dropped; `reason` is for the operator's log."""

    connection: Connection
    reason: str


@dataclass(slots=True)
class Proceed:
    """The connection was full and is not any more, though nothing is sent to it: read from it again."""

    connection: Connection


@dataclass(slots=True)
class Mute:
    """Do not read from the connection before `until`: KIP-219's throttling."""

    connection: Connection
    until: Instant


@dataclass(slots=True)
class Run:
    """Run the job against the disk of that log directory; jobs of one lane run one after the other, in
    order.
    """

    ticket: int
    directory: str
    lane: str
    job: Job


@dataclass(slots=True)
class Send:
    """Send a request to another node; its answer comes back through `completed`."""

    ticket: int
    peer: int
    api_key: int
    version: int
    body: Any


@dataclass(slots=True)
class Report:
    """One event that an operator cares about, for the log: a level, a name, and its facts."""

    level: str  # "info", "warning", "error"
    event: str
    facts: dict[str, Any]


@dataclass(slots=True)
class Halt:
    """The node can no longer keep its promises; the process ends at once, without the clean marker."""

    reason: str


Effect = Answer | Close | Proceed | Mute | Run | Send | Report | Halt
