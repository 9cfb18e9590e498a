"""A request that the group does not accept: decided deep inside, answered at one door."""

from headrace.protocol.errors import ErrorCode


class Refused(Exception):
    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
