"""A small, strict reader of DER (X.690), for the few fields of a certificate that a broker needs.

It reads elements with tags of one byte, and lengths that are definite and as short as possible, and refuses
everything else. It copies nothing before it is asked for the content of an element.
"""

from collections.abc import Iterator
from typing import NamedTuple

INTEGER = 0x02
OBJECT_IDENTIFIER = 0x06
UTF8_STRING = 0x0C
PRINTABLE_STRING = 0x13
TELETEX_STRING = 0x14
IA5_STRING = 0x16
GENERAL_STRING = 0x1B
BMP_STRING = 0x1E
SEQUENCE = 0x30
SET = 0x31
EXPLICIT_0 = 0xA0  # [0] of the surrounding type

OID_BYTES_MAX = 64  # those of attributes have ten at most


class InvalidDer(ValueError):
    """The bytes are not DER, or not what was expected."""


class Element(NamedTuple):
    tag: int
    data: bytes  # all of it
    start: int  # where the element begins
    content: int  # where its content begins
    end: int

    def raw(self) -> bytes:
        """Tag, length and content."""
        return self.data[self.start : self.end]

    def value(self) -> bytes:
        return self.data[self.content : self.end]

    def children(self) -> Iterator["Element"]:
        at = self.content
        while at < self.end:
            child = _read(self.data, at, self.end)
            yield child
            at = child.end


def read_element(data: bytes) -> Element:
    """The one element that these bytes are."""
    element = _read(data, 0, len(data))
    if element.end != len(data):
        raise InvalidDer("there is something behind the end")
    return element


def expect(element: Element, tag: int) -> Element:
    if element.tag != tag:
        raise InvalidDer(f"tag {element.tag:#04x} instead of {tag:#04x}")
    return element


def next_child(children: Iterator[Element]) -> Element:
    for child in children:
        return child
    raise InvalidDer("an element is missing")


def oid_text(element: Element) -> str:
    """An object identifier as 2.5.4.3."""
    data = expect(element, OBJECT_IDENTIFIER).value()
    if not data or len(data) > OID_BYTES_MAX or data[-1] & 0x80:
        raise InvalidDer("an object identifier that is empty, too long or cut off")
    arcs = []
    arc = 0
    is_first_byte = True
    for byte in data:
        if is_first_byte and byte == 0x80:
            raise InvalidDer("a number of an object identifier is longer than it has to be")
        arc = arc << 7 | byte & 0x7F
        is_first_byte = not byte & 0x80
        if is_first_byte:
            arcs.append(arc)
            arc = 0
    # the first two share a number
    root = min(arcs[0] // 40, 2)
    return ".".join(map(str, [root, arcs[0] - 40 * root, *arcs[1:]]))


def _read(data: bytes, start: int, limit: int) -> Element:
    if start + 2 > limit:
        raise InvalidDer("an element is cut off")
    tag, length, content = data[start], data[start + 1], start + 2
    if tag & 0x1F == 0x1F:
        raise InvalidDer("a tag of more than one byte")
    if length & 0x80:
        count = length & 0x7F
        if not 1 <= count <= 4 or content + count > limit:
            raise InvalidDer("a length that is indefinite, too long or cut off")
        length = int.from_bytes(data[content : content + count], "big")
        if length < 0x80 or length >> 8 * (count - 1) == 0:
            raise InvalidDer("a length is longer than it has to be")
        content += count
    if length > limit - content:
        raise InvalidDer("an element is longer than what it is in")
    return Element(tag, data, start, content, content + length)
