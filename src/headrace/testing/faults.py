"""Faults that a test injects: closed connections, delays, errors, broken disks, kill and restart.

Each method starts its fault at once and returns it. As a context manager, the fault ends with the block:

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
    """A fault that is active, until it is ended or has affected the last of its requests."""

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
    """A fault that affects a number of requests."""

    def __init__(self, call: Call, number: int) -> None:
        super().__init__(call, "remove_faults", numbers=[number])
        self._number = number

    @property
    def times_left(self) -> int:
        """How many more requests the fault will affect; -1: no limit."""
        left: int = self._call("times_left", number=self._number)
        return left


class Faults:
    def __init__(self, call: Call) -> None:
        self._call = call

    # --- connections ------------------------------------------------------------------------------------

    def refuse_connections(self) -> ActiveFault:
        """Close all connections and refuse new ones: to its clients the broker is down."""
        self._call("refuse")
        return ActiveFault(self._call, "accept")

    def cut_connections(self) -> int:
        """Close all connections once; clients can reconnect at once. Returns the number of connections."""
        count: int = self._call("cut")
        return count

    # --- requests ---------------------------------------------------------------------------------------

    def delay(
        self, *, ms: float, api: str | int | None = None, times: int | None = None, skip: int = 0
    ) -> RequestFaultInForce:
        """Delay requests by `ms` milliseconds; later requests of the same connection wait, too."""
        return self._add("delay", api, times, skip, delay_ms=ms)

    def error(
        self, *, api: str | int, code: str | int, times: int | None = None, skip: int = 0
    ) -> RequestFaultInForce:
        """Answer requests of an API with an error, and do not carry them out."""
        return self._add("error", api, times, skip, code=error_code_of(code))

    def leader_gone(self) -> ActiveFault:
        """No partition has a leader: metadata names none, and reads and writes fail."""
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
        """Carry the request out, then close the connection instead of answering."""
        return self._add("drop", api, times, skip)

    def _add(
        self, kind: str, api: str | int | None, times: int | None, skip: int, **facts: Any
    ) -> RequestFaultInForce:
        if times is not None and times < 1:
            raise ValueError(f"times={times}: must be at least 1, or None for no limit")
        api_key = None if api is None else api_key_of(api)
        number = self._call("add_fault", kind=kind, api_key=api_key, times=times, skip=skip, **facts)
        return RequestFaultInForce(self._call, number)

    # --- disks ------------------------------------------------------------------------------------------

    def disk_full(self) -> ActiveFault:
        """No disk space for records: produce requests fail, reads work. The end of the fault frees the
        space.
        """
        self._call("fill_disk", is_full=True)
        return ActiveFault(self._call, "fill_disk", is_full=False)

    def io_error(self) -> ActiveFault:
        """The next append to a topic fails and takes the log directory offline until `restart`, even if the
        fault ends before.
        """
        self._call("break_disk", is_broken=True)
        return ActiveFault(self._call, "break_disk", is_broken=False)

    # --- the process ------------------------------------------------------------------------------------

    def kill(self, *, lose_unsynced: bool = False) -> ActiveFault:
        """Like kill -9: connections break, written data stays. With `lose_unsynced`, like a power failure:
        data that was not flushed is lost, or a part of it. The end of the fault restarts the broker.
        """
        self._call("kill", lose_unsynced=lose_unsynced)
        return ActiveFault(self._call, "restart")

    def restart(self) -> None:
        """Restart the broker with the data on its disks; kill it first if it is running."""
        self._call("restart")

    def clear(self) -> None:
        """End all faults."""
        self._call("clear_faults")
