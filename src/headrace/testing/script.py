"""Faults of requests as values: which requests they affect, how often, and how.

They are plain names and numbers, because they are also sent to a broker in another process.
"""

from dataclasses import dataclass
from difflib import get_close_matches
from itertools import count
from typing import Literal

from headrace.node.routes import SERVED
from headrace.protocol.api import ApiKey
from headrace.protocol.errors import ErrorCode

FaultKind = Literal["delay", "error", "drop"]


@dataclass(slots=True)
class RequestFault:
    kind: FaultKind
    api_key: int | None  # None: every request
    times: int | None  # None: until it is taken back
    skip: int = 0  # such requests that are left alone first
    delay_ms: float = 0.0
    code: int = 0


class Script:
    """The active faults, oldest first."""

    def __init__(self) -> None:
        self._faults: dict[int, RequestFault] = {}
        self._ids = count(1)

    @property
    def is_empty(self) -> bool:
        return not self._faults

    def add(self, fault: RequestFault) -> int:
        number = next(self._ids)
        self._faults[number] = fault
        return number

    def remove(self, number: int) -> None:
        """Removes a fault; it may have ended already."""
        self._faults.pop(number, None)

    def clear(self) -> None:
        self._faults.clear()

    def times_left(self, number: int) -> int:
        """How many more requests the fault will affect; -1: no limit."""
        fault = self._faults.get(number)
        if fault is None:
            return 0
        return -1 if fault.times is None else fault.times

    def meet(self, kinds: tuple[FaultKind, ...], api_key: int) -> RequestFault | None:
        """The fault that affects a request of this API, or None; counts the request."""
        for number, fault in self._faults.items():
            if fault.kind not in kinds or fault.api_key not in (None, api_key):
                continue
            if fault.skip:
                fault.skip -= 1
                continue
            if fault.times is not None:
                fault.times -= 1
                if fault.times <= 0:
                    del self._faults[number]
            return fault
        return None


def api_key_of(api: str | int) -> int:
    """An API by its number or by Kafka's name for it, in any spelling: "ListOffsets", "LIST_OFFSETS"."""
    if isinstance(api, int):
        if api not in SERVED:
            raise ValueError(f"the broker does not serve an API with key {api}")
        return api
    served = {ApiKey(key).name.replace("_", "").lower(): key for key in SERVED}
    wanted = api.replace("_", "").lower()
    if wanted not in served:
        raise ValueError(f"the broker does not serve an API {api!r}{_perhaps(wanted, served)}")
    return served[wanted]


def error_code_of(code: str | int) -> int:
    """An error by its number or by Kafka's name for it."""
    if isinstance(code, int):
        return code  # also one that Kafka does not know: clients must live with those
    names = {name: name for name in ErrorCode.__members__}
    if code.upper() not in names:
        raise ValueError(f"Kafka has no error {code!r}{_perhaps(code.upper(), names)}")
    return ErrorCode[code.upper()]


def _perhaps(wanted: str, known: dict[str, int] | dict[str, str]) -> str:
    close = get_close_matches(wanted, known, n=1)
    if not close:
        return ""
    meant = known[close[0]]
    return f"; did you mean {meant if isinstance(meant, str) else _spelled(meant)!r}?"


def _spelled(api_key: int) -> str:
    """LIST_OFFSETS as Kafka writes it: ListOffsets."""
    return "".join(word.capitalize() for word in ApiKey(api_key).name.split("_"))
