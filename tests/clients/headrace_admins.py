"""Both admin clients of ours behind the same calls, so that one story tests both."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headrace.client.aio.admin import Admin as AsyncAdmin
from headrace.client.threads.admin import Admin


class OnLoop:
    """The client for asyncio, a call at a time: each runs the loop until it is done."""

    def __init__(self, admin: AsyncAdmin, loop: asyncio.AbstractEventLoop) -> None:
        self._admin = admin
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._admin, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._loop.run_until_complete(method(*args, **kwargs))

        return call


@contextmanager
def opened(shell: str, bootstrap: str, **settings: object) -> Iterator[Any]:
    """`threads` or `aio`."""
    if shell == "threads":
        with Admin(bootstrap, **settings) as admin:
            yield admin
        return
    loop = asyncio.new_event_loop()
    asyncly = AsyncAdmin(bootstrap, **settings)
    try:
        yield OnLoop(asyncly, loop)
    finally:
        loop.run_until_complete(asyncly.close())
        loop.close()
