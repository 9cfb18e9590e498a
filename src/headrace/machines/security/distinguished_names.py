r"""Distinguished names of certificates as text, written as Java's `X500Principal.getName()` writes them.

Rules and principals of a Kafka cluster contain this text, so it has to be the same to the character. It is
that of RFC 2253: the most specific part first, `+` between the attributes of one part, nine keywords, and
`1.2.3=#hex` for every other attribute. Java also escapes `=` and `#` everywhere. That makes it safe to match
with patterns: `,OU=Admins` inside a common name becomes `\,OU\=Admins`.
"""

from collections.abc import Iterator

from headrace.machines.security.der import (
    BMP_STRING,
    EXPLICIT_0,
    GENERAL_STRING,
    IA5_STRING,
    INTEGER,
    PRINTABLE_STRING,
    SEQUENCE,
    SET,
    TELETEX_STRING,
    UTF8_STRING,
    Element,
    InvalidDer,
    expect,
    next_child,
    oid_text,
    read_element,
)

CERTIFICATE_BYTES_MAX = 64 * 1024  # with some hundred alternative names; usual ones have 1 to 2 KiB
ATTRIBUTES_MAX = 100

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}

# Java reads the bytes of all of these as UTF-8, also where that is wrong: a BMPString shows its zeros.
_TEXTS = {UTF8_STRING, PRINTABLE_STRING, TELETEX_STRING, IA5_STRING, GENERAL_STRING, BMP_STRING}

_ESCAPED = str.maketrans({mark: f"\\{mark}" for mark in ',=+<>#;"\\'} | {"\0": "\\00"})
_BLANKS = " \r"  # escaped at the beginning and at the end


def subject_of_certificate(certificate: bytes) -> str:
    """The subject of an X.509 certificate in DER; empty if it has none. InvalidDer if it cannot be read."""
    if len(certificate) > CERTIFICATE_BYTES_MAX:
        raise InvalidDer(f"a certificate of {len(certificate)} bytes")
    signed = next_child(expect(read_element(certificate), SEQUENCE).children())
    fields = expect(signed, SEQUENCE).children()
    first = next_child(fields)
    if first.tag == EXPLICIT_0:  # the version, which the first version of X.509 does not have
        first = next_child(fields)
    expect(first, INTEGER)  # the serial number
    for _ in ("signature algorithm", "issuer", "validity"):
        expect(next_child(fields), SEQUENCE)
    return _name_text(next_child(fields))


def name_text(name: bytes) -> str:
    """A Name in DER as text."""
    if len(name) > CERTIFICATE_BYTES_MAX:
        raise InvalidDer(f"a name of {len(name)} bytes")
    return _name_text(read_element(name))


def _name_text(name: Element) -> str:
    parts = []
    count = 0
    for part in expect(name, SEQUENCE).children():
        attributes = list(_attributes(part))
        count += len(attributes)
        if not attributes or count > ATTRIBUTES_MAX:
            raise InvalidDer(f"a name with an empty part, or more than {ATTRIBUTES_MAX} attributes")
        parts.append("+".join(attributes))
    return ",".join(reversed(parts))


def _attributes(part: Element) -> Iterator[str]:
    for attribute in expect(part, SET).children():
        fields = expect(attribute, SEQUENCE).children()
        oid = oid_text(next_child(fields))
        value = next_child(fields)
        if next(fields, None) is not None:
            raise InvalidDer("an attribute of a name with more than two fields")
        keyword = _KEYWORDS.get(oid)
        if keyword is None or value.tag not in _TEXTS:
            yield f"{keyword or oid}=#{value.raw().hex()}"
        else:
            yield f"{keyword}={_escape(value)}"


def _escape(value: Element) -> str:
    try:
        text = value.value().decode()
    except UnicodeDecodeError:
        # Java would replace what it cannot read, and two names would become one
        raise InvalidDer("an attribute of a name is not UTF-8") from None
    inner = text.strip(_BLANKS)
    start = len(text) - len(text.lstrip(_BLANKS))
    lead, trail = text[:start], text[start + len(inner) :]
    return _escape_all(lead) + inner.translate(_ESCAPED) + _escape_all(trail)


def _escape_all(blanks: str) -> str:
    return "".join(f"\\{blank}" for blank in blanks)
