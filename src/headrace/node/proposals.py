"""Proposals to the metadata log with a reply of several items: if the append fails, each gets the error."""

from typing import Any, Protocol, TypeVar

from headrace.base.time import Now
from headrace.machines.metadata.controller.decision import MetadataDecision
from headrace.node.error_codes import FAULTS, code_of
from headrace.protocol.errors import ErrorCode


class Item(Protocol):
    """What became of one part of a request."""

    error: ErrorCode
    message: str | None


T = TypeVar("T", bound=Item)


class Proposes(Protocol):
    """The metadata log, or a part that reports about what it appends there."""

    def propose(self, now: Now, decision: MetadataDecision[Any], /) -> int: ...

    @property
    def end_offset(self) -> int: ...


def propose(metadata: Proposes, now: Now, decision: MetadataDecision[list[T]]) -> int:
    """Append a decision's records; the offset that makes its reply true.

    When they cannot be appended, every item that would have succeeded is told why it did not.
    """
    try:
        return metadata.propose(now, decision)
    except FAULTS as fault:
        for item in decision.reply:
            if item.error is ErrorCode.NONE:
                item.error, item.message = code_of(fault), str(fault)
        return metadata.end_offset
