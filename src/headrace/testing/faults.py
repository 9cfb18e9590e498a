"""What a test does to its broker: refusals, delays, errors, cut connections, broken disks, kill and restart.

Each method puts its fault in force at once and gives it back, to be kept or to be used as a context manager
that ends it:

    with broker.faults.error(api="Produce", code="NOT_ENOUGH_REPLICAS"):
        ...
    broker.faults.delay(api="Fetch", ms=200, times=1)
"""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from headrace.testing.script import api_key_of, error_code_of

Call = Callable[..., Any]

# How requests are answered while there is no leader.
LEADERLESS = {
    "Metadata": "LEADER_NOT_AVAILABLE",
    "Produce": "NOT_LEADER_OR_FOLLOWER",
    "Fetch": "NOT_LEADER_OR_FOLLOWER",
    "ListOffsets": "NOT_LEADER_OR_FOLLOWER",
}


class ActiveFault:
    """A fault in force, until it is ended or has spent itself."""

    def __init__(self, call: Call, end: str, **arguments: Any) -> None:
        self._call = call
        self._end = end
        self._arguments = arguments
        self._is_ended = False

    def end(self) -> None:
        if not self._is_ended:
            self._is_ended = True
            self._call(self._end, **self._arguments)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


class RequestFaultInForce(ActiveFault):
    """A fault that strikes requests, and is counted."""

    def __init__(self, call: Call, number: int) -> None:
        super().__init__(call, "remove_faults", numbers=[number])
        self._number = number

    @property
    def times_left(self) -> int:
        """How many more requests it will strike; -1: without end."""
        left: int = self._call("times_left", number=self._number)
        return left


class Faults:
    def __init__(self, call: Call) -> None:
        self._call = call

    # --- connections ------------------------------------------------------------------------------------

    def refuse_connections(self) -> ActiveFault:
        """Cut all connections and refuse new ones: to its clients the broker is gone."""
        self._call("refuse")
        return ActiveFault(self._call, "accept")

    def cut_connections(self) -> int:
        """End all connections once; clients may come back at once. How many there were."""
        count: int = self._call("cut")
        return count

    # --- requests ---------------------------------------------------------------------------------------

    def delay(
        self, *, ms: float, api: str | int | None = None, times: int | None = None, skip: int = 0
    ) -> RequestFaultInForce:
        """Handle requests later by so many milliseconds; what its connection sends meanwhile waits."""
        return self._add("delay", api, times, skip, delay_ms=ms)

    def error(
        self, *, api: str | int, code: str | int, times: int | None = None, skip: int = 0
    ) -> RequestFaultInForce:
        """Answer requests of an API with an error and do nothing of what they ask."""
        return self._add("error", api, times, skip, code=error_code_of(code))

    def leader_gone(self) -> ActiveFault:
        """No partition has a leader: metadata tells none, and reads and writes are sent away."""
        numbers = [
            self._call(
                "add_fault", kind="error", api_key=api_key_of(api), times=None, code=error_code_of(code)
            )
            for api, code in LEADERLESS.items()
        ]
        return ActiveFault(self._call, "remove_faults", numbers=numbers)

    def drop_after_write(
        self, times: int | None = 1, *, api: str | int = "Produce", skip: int = 0
    ) -> RequestFaultInForce:
        """Do what the request asks, then cut its connection instead of answering: the client cannot know."""
        return self._add("drop", api, times, skip)

    def _add(
        self, kind: str, api: str | int | None, times: int | None, skip: int, **facts: Any
    ) -> RequestFaultInForce:
        if times is not None and times < 1:
            raise ValueError("a fault strikes once or more; times=None is without end")
        api_key = None if api is None else api_key_of(api)
        number = self._call("add_fault", kind=kind, api_key=api_key, times=times, skip=skip, **facts)
        return RequestFaultInForce(self._call, number)

    # --- disks ------------------------------------------------------------------------------------------

    def disk_full(self) -> ActiveFault:
        """No room for records: produce is refused, reading goes on. Room is back when it ends."""
        self._call("fill_disk", is_full=True)
        return ActiveFault(self._call, "fill_disk", is_full=False)

    def io_error(self) -> ActiveFault:
        """The next append to a topic fails, and takes the log directory offline: until `restart`, even if
        the fault has ended before.
        """
        self._call("break_disk", is_broken=True)
        return ActiveFault(self._call, "break_disk", is_broken=False)

    # --- the process ------------------------------------------------------------------------------------

    def kill(self, *, lose_unsynced: bool = False) -> ActiveFault:
        """As kill -9: connections break, what was written stays. With `lose_unsynced` as a power cut: what
        was not flushed is gone, or a part of it. Its end is a restart.
        """
        self._call("kill", lose_unsynced=lose_unsynced)
        return ActiveFault(self._call, "restart")

    def restart(self) -> None:
        """Start the broker on what it finds on its disks; if it runs, it is killed before."""
        self._call("restart")

    def clear(self) -> None:
        """End all faults."""
        self._call("clear_faults")
