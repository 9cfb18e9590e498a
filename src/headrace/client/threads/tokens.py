"""OAuth tokens for a thread's connections: the provider may block, so it is called on a thread of its own."""

import threading
from collections.abc import Callable

from headrace.client.security.oauthbearer import TokenProvider, Tokens


def tokens_of(provider: TokenProvider, wake: Callable[[], None]) -> Tokens:
    """`wake` is called, from that thread, when asking again is worth it."""

    def fetch() -> None:
        threading.Thread(target=ask, name="headrace-token", daemon=True).start()

    def ask() -> None:
        try:
            tokens.came(provider())
        except Exception as error:
            tokens.failed(error)
        wake()

    tokens = Tokens(fetch)
    return tokens
