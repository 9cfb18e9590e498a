"""Which error an older client understands: PRODUCER_FENCED was INVALID_PRODUCER_EPOCH once."""

from headrace.protocol.errors import ErrorCode

INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN = 22, 24, 25, 26
_FENCED_SINCE = {INIT_PRODUCER_ID: 4, ADD_PARTITIONS_TO_TXN: 2, ADD_OFFSETS_TO_TXN: 2, END_TXN: 2}


def told(api_key: int, version: int, error: ErrorCode) -> ErrorCode:
    if error is ErrorCode.PRODUCER_FENCED and version < _FENCED_SINCE[api_key]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
