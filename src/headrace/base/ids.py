"""Types for integers and bytes that could be confused, so that an offset is never passed as a position.

A topic id is its 16 raw bytes; people see it as Kafka prints it, in 22 characters of URL-safe base64.
"""

import base64
import binascii
from collections.abc import Iterable
from typing import NewType

from headrace.base.randomness import Randomness

Offset = NewType("Offset", int)
Position = NewType("Position", int)  # byte position in a file
Epoch = NewType("Epoch", int)
BrokerId = NewType("BrokerId", int)
ProducerId = NewType("ProducerId", int)
TopicId = NewType("TopicId", bytes)
DirectoryId = NewType("DirectoryId", bytes)

NO_TOPIC_ID = TopicId(bytes(16))
METADATA_TOPIC_ID = TopicId(bytes(15) + b"\x01")  # Kafka's fixed id of __cluster_metadata

_URL_SAFE = bytes.maketrans(b"+/", b"-_")

NO_EPOCH = Epoch(-1)
NO_PRODUCER_ID = ProducerId(-1)


def id_text(raw: bytes) -> str:
    """The 22 characters Kafka prints for a 16-byte id."""
    return binascii.b2a_base64(raw).translate(_URL_SAFE, b"=\n").decode()


def new_id_text(rng: Randomness) -> str:
    """A random id as text. Like Kafka we take none that begins with '-', which command lines would read as an
    option.
    """
    while True:
        text = id_text(rng.randbytes(16))
        if not text.startswith("-"):
            return text


def shared_id_text(words: Iterable[str]) -> str:
    """An id as text that is the same wherever it is made of the same words. None begins with '-'."""
    from hashlib import sha256  # only new nodes of a cluster need it

    text = id_text(sha256(",".join(words).encode()).digest()[:16])
    return text.replace("-", "A", 1) if text.startswith("-") else text


def id_from_text(text: str) -> bytes:
    """The 16 bytes behind Kafka's text form; ValueError when it is not one."""
    try:
        raw = base64.urlsafe_b64decode(text + "==")
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"not an id: {text!r}") from error
    if len(raw) != 16:
        raise ValueError(f"not an id of 16 bytes: {text!r}")
    return raw
