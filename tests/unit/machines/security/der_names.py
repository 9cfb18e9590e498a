"""A writer of DER, for names and certificates in tests."""

from __future__ import annotations

from collections.abc import Iterable

CN, C, OU, ORG, EMAIL = "2.5.4.3", "2.5.4.6", "2.5.4.11", "2.5.4.10", "1.2.840.113549.1.9.1"
UTF8 = 0x0C

Attribute = tuple[str, int, bytes]  # object identifier, tag and content of the value


def element(tag: int, content: bytes) -> bytes:
    length = len(content)
    if length < 0x80:
        return bytes([tag, length]) + content
    digits = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(digits)]) + digits + content


def oid(text: str) -> bytes:
    first, second, *rest = map(int, text.split("."))
    content = b""
    for arc in (40 * first + second, *rest):
        digits = [arc & 0x7F]
        while arc := arc >> 7:
            digits.append(arc & 0x7F | 0x80)
        content += bytes(reversed(digits))
    return element(0x06, content)


def name(parts: Iterable[Iterable[Attribute]]) -> bytes:
    """From the most general part to the most specific, as certificates have it."""
    return element(
        0x30,
        b"".join(
            element(
                0x31, b"".join(element(0x30, oid(kind) + element(tag, value)) for kind, tag, value in part)
            )
            for part in parts
        ),
    )


def certificate(subject: bytes, *, has_version: bool = True) -> bytes:
    """One whose key and signature are empty."""
    issuer = name([[(CN, UTF8, b"issuer")]])
    version = element(0xA0, element(0x02, b"\x02")) if has_version else b""
    empty = element(0x30, b"")
    signed = element(0x30, version + element(0x02, b"\x01") + empty + issuer + empty + subject + empty)
    return element(0x30, signed + empty + element(0x03, b"\0"))
