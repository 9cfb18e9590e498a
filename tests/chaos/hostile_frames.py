"""Bytes on a connection that are not a request, or one that cannot be understood: the broker hangs up.

Lengths, headers and primitives of everyday malice; most are valid but for one thing.
"""

from __future__ import annotations

import struct

from chaos.asking import PLAIN
from chaos.hostile_batches import good
from chaos.peer import frame, header, text

PRODUCE, FETCH, METADATA = 0, 1, 3

FRAME_BYTES_MAX = 100 << 20  # socket.request.max.bytes

TOO_MANY = b"\xff\xff\xff\xff\x07"  # 2^31-1 as an unsigned varint
TOO_LONG = b"\xff" * 10 + b"\x01"  # an unsigned varint of eleven bytes
TLS_HELLO = b"\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03" + bytes(194)
ALL_TOPICS_V9 = b"\0" + b"\0\0\0" + b"\0"  # null topics, no flags, no tags

CLOSES: dict[str, bytes] = {
    "length negative": struct.pack(">i", -1) + bytes(100),
    "length 0": struct.pack(">i", 0) + bytes(100),
    "length 3": struct.pack(">i", 3) + bytes(100),
    "length 2^31-1": struct.pack(">i", 2**31 - 1) + bytes(100),
    "length above the limit": struct.pack(">i", FRAME_BYTES_MAX + 1) + bytes(100),
    "TLS hello": TLS_HELLO,
    "HTTP GET": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "HTTP POST": b"POST /topics HTTP/1.1\r\nHost: broker\r\n\r\n",
    "rubbish": bytes(reversed(range(256))),
    "api key 999": frame(header(999, 0)),
    "api key -1": frame(header(-1, 0)),
    "api key 41, which is not served": frame(header(41, 1, tags=b"\0")),
    "version 99": frame(header(METADATA, 99, tags=b"\0")),
    "version -1": frame(header(METADATA, -1)),
    "Produce v2": frame(header(PRODUCE, 2) + struct.pack(">hii", 1, 1000, 0)),
    "Fetch v3": frame(header(FETCH, 3) + struct.pack(">iiiii", -1, 0, 0, 0, 0)),
    "header cut": frame(header(METADATA, 1)[:9]),
    "client id longer than the frame": frame(struct.pack(">hhih", METADATA, 1, 7, 30_000) + b"me"),
    "flexible header without tags": frame(header(METADATA, 9)),
    "header with 2^31-1 tags": frame(header(METADATA, 9, tags=TOO_MANY) + ALL_TOPICS_V9),
    "header with two tags 5": frame(header(METADATA, 9, tags=b"\x02\x05\x00\x05\x00") + ALL_TOPICS_V9),
    "header with tags out of order": frame(header(METADATA, 9, tags=b"\x02\x05\x00\x04\x00") + ALL_TOPICS_V9),
    "header tag longer than the frame": frame(
        header(METADATA, 9, tags=b"\x01\x05" + TOO_MANY) + ALL_TOPICS_V9
    ),
    "tag count of eleven bytes": frame(header(METADATA, 9, tags=TOO_LONG) + ALL_TOPICS_V9),
    "body cut": frame(header(METADATA, 1) + struct.pack(">i", 1) + b"\0"),
    "frame shorter than the body": struct.pack(">i", 12) + header(METADATA, 1) + struct.pack(">i", 0) * 9,
    # primitives
    "2^31-1 topics": frame(header(METADATA, 1) + struct.pack(">i", 2**31 - 1)),
    "2^31-1 topics, compact": frame(header(METADATA, 9, tags=b"\0") + TOO_MANY + bytes(4)),
    "2^32-1 topics, compact": frame(header(METADATA, 9, tags=b"\0") + b"\xff\xff\xff\xff\x0f" + bytes(4)),
    "topic count of eleven bytes": frame(header(METADATA, 9, tags=b"\0") + TOO_LONG + bytes(4)),
    "topic count that does not end": frame(header(METADATA, 9, tags=b"\0") + b"\xff"),
    "name null where it must not be": frame(header(METADATA, 1) + struct.pack(">ih", 1, -1)),
    "name null, compact": frame(header(METADATA, 9, tags=b"\0") + b"\x02\0\0" + bytes(4)),
    "name of length -2": frame(header(METADATA, 1) + struct.pack(">ih", 1, -2)),
    "name longer than the frame": frame(header(METADATA, 1) + struct.pack(">ih", 1, 32_767) + b"me"),
    "name of 2^31-1, compact": frame(header(METADATA, 9, tags=b"\0") + b"\x02" + TOO_MANY + bytes(4)),
    "name that is not UTF-8": frame(header(METADATA, 1) + struct.pack(">i", 1) + text(b"\xff\xfe\xc3")),
    "name of half a surrogate": frame(header(METADATA, 1) + struct.pack(">i", 1) + text(b"\xed\xa0\x80")),
    "body with 2^31-1 tags": frame(header(METADATA, 9, tags=b"\0") + ALL_TOPICS_V9[:-1] + TOO_MANY),
    "body with a tag twice": frame(
        header(METADATA, 9, tags=b"\0") + ALL_TOPICS_V9[:-1] + b"\x02\x01\x00\x01\x00"
    ),
    "Produce of -1 topics": frame(header(PRODUCE, 3) + struct.pack(">hhii", -1, 1, 1000, -1)),
    "Produce with records longer than the frame": frame(
        header(PRODUCE, 3)
        + struct.pack(">hhii", -1, 1, 1000, 1)
        + text(PLAIN)
        + struct.pack(">iii", 1, 0, 2**31 - 1)
        + good()
    ),
    "Produce of ten million empty partitions": frame(
        header(PRODUCE, 3)
        + struct.pack(">hhii", -1, 1, 1000, 1)
        + text(PLAIN)
        + struct.pack(">i", 10**7)
        + struct.pack(">ii", 0, -1) * 10**7
    ),
    "Metadata of 200,000 names": frame(
        header(METADATA, 1) + struct.pack(">i", 200_000) + text("x") * 200_000
    ),
    "Fetch of 200 topics with 1,000 partitions each": frame(
        header(FETCH, 4)
        + struct.pack(">iiiibi", -1, 0, 1, 1000, 0, 200)
        + (text("x") + struct.pack(">i", 1000) + struct.pack(">iqi", 0, 0, 100) * 1000) * 200
    ),
    "Metadata of 9 MB": frame(header(METADATA, 1) + struct.pack(">i", 3 * 10**6) + text("x") * 3 * 10**6),
}
