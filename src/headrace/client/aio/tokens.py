"""OAuth tokens for connections on an event loop: a coroutine is awaited, a plain function may block and is
called on a thread of the loop's pool.
"""

import asyncio
import inspect
from collections.abc import Callable

from headrace.client.security.oauthbearer import TokenProvider, Tokens


def tokens_of(provider: TokenProvider, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> Tokens:
    """`wake` is called, on the loop, when asking again is worth it."""
    tasks: set[asyncio.Task[None]] = set()  # the loop itself keeps only weak references

    def fetch() -> None:
        task = loop.create_task(ask())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def ask() -> None:
        try:
            is_coroutine = inspect.iscoroutinefunction(provider)
            given = provider() if is_coroutine else await loop.run_in_executor(None, provider)
            tokens.came(await given if inspect.isawaitable(given) else given)
        except Exception as error:
            tokens.failed(error)
        wake()

    tokens = Tokens(fetch)
    return tokens
