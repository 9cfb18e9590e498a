"""Border between the core and its shells: what a shell drives, and the log that it lends.

A session says which requests have to leave and by when it wants to be asked again. The driver sends them, and
gives every ticket its answer or the error that came instead, exactly once.
"""

from typing import Protocol

from headrace.base.time import Instant
from headrace.client.cluster import Cluster
from headrace.client.network.reachability import Reachability
from headrace.client.request_queue import Answer, Outgoing


class Session(Protocol):
    @property
    def cluster(self) -> Cluster:
        """Where brokers are found; a view that the session keeps fresh."""
        ...

    @property
    def reachability(self) -> Reachability:
        """Where the driver's sockets report whether brokers can be reached."""
        ...

    def requests(self, now: Instant) -> list[Outgoing]:
        """What has to be sent now; asking again gives only what is new."""
        ...

    def answered(self, now: Instant, ticket: int, answer: Answer) -> None: ...

    def deadline(self) -> Instant:
        """When to ask for requests again at the latest, even if nothing arrives."""
        ...


class Log(Protocol):
    """Where the core writes what people have to know; shells pass a `logging.Logger`."""

    def info(self, message: str, /, *arguments: object) -> None: ...

    def warning(self, message: str, /, *arguments: object) -> None: ...
