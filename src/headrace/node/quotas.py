"""The one place where it is asked whether a client has to slow down (KIP-219: answer at once, then mute)."""

from typing import Protocol

from headrace.node.request import Request


class Quotas(Protocol):
    def throttle_ms(self, request: Request, response_bytes: int, /) -> int:
        """Charge a request and its answer; how long the client's connection is to stay quiet."""
        ...
