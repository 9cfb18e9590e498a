"""GroupError: the exception for a request that a group does not accept, with Kafka's error code."""

from headrace.protocol.errors import ErrorCode


class GroupError(Exception):
    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
