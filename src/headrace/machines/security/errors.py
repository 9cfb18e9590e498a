"""The error of a login that a broker refuses."""


class LoginRefused(Exception):
    """The client did not prove who it is.

    The text is for the broker's log: it may say which part was wrong, which the client is not told. It has no
    bytes of the client's message, which could be a password. `told` is what the client is told instead of the
    usual sentence, where its mechanism has words for it.
    """

    def __init__(self, reason: str, *, told: str = "") -> None:
        super().__init__(reason)
        self.told = told
