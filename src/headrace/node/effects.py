"""Effects: what a node asks its driver to do. The server carries them out, and so does the simulator.

They are carried out in the order of the list. Answers of one connection leave in this order.
"""

from typing import TYPE_CHECKING, Any

from headrace.base.time import Instant
from headrace.base.values import Value
from headrace.node.connection import Connection
from headrace.storage.disk import Span
from headrace.storage.jobs import Job

if TYPE_CHECKING:
    from headrace.node.peers import Peer

# A whole frame, size prefix included, as buffers to send one after the other.
Parts = list[bytes | bytearray | memoryview | Span]


class Answer(Value):
    connection: Connection
    parts: Parts


class Close(Value):
    """Close the connection and drop unsent answers; `reason` is for the operator's log."""

    connection: Connection
    reason: str


class Proceed(Value):
    """Read from the connection again: it was full, and is not any more."""

    connection: Connection


class Mute(Value):
    """Do not read from the connection before `until`: KIP-219's throttling."""

    connection: Connection
    until: Instant


class Run(Value):
    """Run the job against the disk of that log directory; jobs of one queue run one after the other, in
    order.
    """

    ticket: int
    directory: str
    queue: str
    job: Job


class Fetch(Value):
    """Get the document at a URL: `https:`, `http:` of this machine, or `file:`. Its bytes go to
    `Node.completed`, or the error; redirects and longer documents are errors.
    """

    ticket: int
    url: str
    bytes_max: int


class Send(Value):
    """Send a request's frame to another node, on the connection of that lane, which is opened if need be.

    The frame of the response, which has the ticket as its correlation id, goes to `Node.answered`, and so
    does the reason why there is none.
    """

    ticket: int
    peer: "Peer"
    lane: str
    frame: bytes


class Hangup(Value):
    """Close the connection of a lane to another node; all that is under way there is lost."""

    peer_id: int
    lane: str


class Report(Value):
    """One event for the operator's log: a level, a name, and facts."""

    level: str  # "info", "warning", "error"
    event: str
    facts: dict[str, Any]


class WriteAudit(Value):
    """Entries for the audit log, which were made at this time."""

    wall_ms: int
    entries: list[dict[str, Any]]


class LoseAudit(Value):
    """So many entries for the audit log were dropped, and why: they are counted, and the logs say so."""

    count: int
    reason: str


class Halt(Value):
    """The node cannot continue safely; the process ends at once, without the marker of a clean stop."""

    reason: str


Effect = (
    Answer | Close | Proceed | Mute | Run | Fetch | Send | Hangup | Report | WriteAudit | LoseAudit | Halt
)
