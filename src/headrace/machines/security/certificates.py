"""What a broker needs to know of its own certificates: subject, alternative names, and when they expire."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from headrace.machines.security.der import (
    EXPLICIT_0,
    INTEGER,
    SEQUENCE,
    Element,
    InvalidDer,
    expect,
    next_child,
    oid_text,
    read_element,
)
from headrace.machines.security.distinguished_names import CERTIFICATE_BYTES_MAX, name_text

UTC_TIME = 0x17
GENERALIZED_TIME = 0x18
OCTET_STRING = 0x04
EXPLICIT_3 = 0xA3  # the extensions
DNS_NAME = 0x82

_ALTERNATIVE_NAMES = "2.5.29.17"


@dataclass(slots=True, frozen=True)
class CertificateFacts:
    subject: str  # as Java writes it
    alternatives: frozenset[bytes]  # in DER, each with its kind
    hosts: tuple[str, ...]  # names of hosts among them, in lower case
    expires_at: int  # in seconds since 1970


def facts_of_certificate(certificate: bytes) -> CertificateFacts:
    """Of an X.509 certificate in DER. InvalidDer if it cannot be read."""
    if len(certificate) > CERTIFICATE_BYTES_MAX:
        raise InvalidDer(f"a certificate of {len(certificate)} bytes")
    signed = next_child(expect(read_element(certificate), SEQUENCE).children())
    fields = expect(signed, SEQUENCE).children()
    first = next_child(fields)
    if first.tag == EXPLICIT_0:  # the version, which the first version of X.509 does not have
        first = next_child(fields)
    expect(first, INTEGER)  # the serial number
    for _ in ("signature algorithm", "issuer"):
        expect(next_child(fields), SEQUENCE)
    validity = expect(next_child(fields), SEQUENCE).children()
    next_child(validity)
    expires_at = _seconds(next_child(validity))
    subject = name_text(next_child(fields).raw())
    names = list(_alternatives(fields))
    hosts = tuple(_host(name) for name in names if name.tag == DNS_NAME)
    return CertificateFacts(subject, frozenset(name.raw() for name in names), hosts, expires_at)


def _alternatives(rest: Iterator[Element]) -> Iterator[Element]:
    for field in rest:
        if field.tag != EXPLICIT_3:
            continue
        for extension in expect(next_child(field.children()), SEQUENCE).children():
            parts = list(expect(extension, SEQUENCE).children())
            if len(parts) < 2:
                raise InvalidDer("an extension without a value")
            oid, value = parts[0], parts[-1]
            if oid_text(oid) == _ALTERNATIVE_NAMES:
                names = read_element(expect(value, OCTET_STRING).value())
                yield from expect(names, SEQUENCE).children()


def _host(name: Element) -> str:
    return name.value().decode("ascii", "replace").lower()


def _seconds(moment: Element) -> int:
    form = {UTC_TIME: "%y%m%d%H%M%SZ", GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}.get(moment.tag)
    if form is None:
        raise InvalidDer(f"tag {moment.tag:#04x} instead of a time")
    text = moment.value().decode("ascii", "replace")
    try:
        found = datetime.strptime(text, form).replace(tzinfo=UTC)
    except ValueError:
        raise InvalidDer(f"the time {text[:20]!r}") from None
    if moment.tag == UTC_TIME and found.year >= 2050:  # RFC 5280: two digits are those of 1950 to 2049
        found = found.replace(year=found.year - 100)
    return int(found.timestamp())


def serves(facts: CertificateFacts, host: str) -> bool:
    """Whether it is a certificate for this host, which may be matched by a `*` as its first part."""
    host = host.lower().rstrip(".")
    _, _, parent = host.partition(".")
    return any(name == host or (parent and name == f"*.{parent}") for name in facts.hosts)


def forbidden_change(
    before: list[CertificateFacts], after: list[CertificateFacts], *, dn: bool, san: bool
) -> str | None:
    """Why a certificate may not take the place of another one, as in Kafka; None: it may. `dn`, `san`:
    whether subject and alternative names may change.
    """
    if len(before) != len(after):
        return f"there are {len(after)} certificates instead of {len(before)}"
    for old, new in zip(before, after, strict=True):
        if not dn and old.subject != new.subject:
            return f"the subject is {new.subject}, not {old.subject}; ssl.allow.dn.changes=true allows that"
        if not san and not old.alternatives <= new.alternatives:
            return "some alternative names are missing; ssl.allow.san.changes=true allows that"
    return None
