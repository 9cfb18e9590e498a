"""Where the fields that change from fetch to fetch are in the frame of a FetchRequest."""

from struct import Struct

from headrace.node.routes import FETCH
from headrace.protocol.api import request_codec
from headrace.protocol.messages.fetch import FetchRequest

_EPOCH = Struct(">i")
_OFFSET = Struct(">q")
_EPOCH_SENTINEL = 0x6BD2_44FC
_OFFSET_SENTINEL = 0x7AC1_55ED_0FF5_E701


def places_of(body: FetchRequest, version: int, frame: memoryview) -> tuple[int, int] | None:
    """Where the session's epoch and the offset are in the frame; None: they cannot be located."""
    wanted = body.topics[0].partitions[0]
    said = body.session_epoch, wanted.fetch_offset
    body.session_epoch, wanted.fetch_offset = _EPOCH_SENTINEL, _OFFSET_SENTINEL
    encoded = request_codec(FETCH, version).encode(body)
    body.session_epoch, wanted.fetch_offset = said
    epoch, offset = _EPOCH.pack(_EPOCH_SENTINEL), _OFFSET.pack(_OFFSET_SENTINEL)
    if encoded.count(epoch) != 1 or encoded.count(offset) != 1:
        return None  # the topic, or the rack, is named like one of them
    begins = len(frame) - len(encoded)
    places = begins + encoded.index(epoch), begins + encoded.index(offset)
    encoded = encoded.replace(epoch, _EPOCH.pack(said[0])).replace(offset, _OFFSET.pack(said[1]))
    # the same can be said in other bytes, some left over at the end for example
    return places if begins >= 0 and frame[begins:] == encoded else None
