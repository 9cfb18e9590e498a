"""Facts of certificates, which of them is for a host, and which may take another's place."""

from __future__ import annotations

import ssl
import subprocess

import pytest

from harness.certificates import Authority, Certificate
from headrace.machines.security.certificates import (
    CertificateFacts,
    facts_of_certificate,
    forbidden_change,
    serves,
)
from headrace.machines.security.der import InvalidDer
from headrace.machines.security.pem import identities


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def der_of(issued: Certificate) -> bytes:
    return ssl.PEM_cert_to_DER_cert(issued.certificate.read_text())


def test_what_openssl_wrote(authority: Authority) -> None:
    issued = authority.issue("broker", "DNS:Kafka.example.org,IP:127.0.0.1,DNS:*.example.com", days=30)
    facts = facts_of_certificate(der_of(issued))
    assert facts.subject == "CN=broker"
    assert facts.hosts == ("kafka.example.org", "*.example.com")
    assert len(facts.alternatives) == 3
    command = ["openssl", "x509", "-noout", "-enddate", "-in", str(issued.certificate)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert facts.expires_at == ssl.cert_time_to_seconds(said.strip().removeprefix("notAfter="))


def test_the_authority_has_no_alternatives(authority: Authority) -> None:
    der = ssl.PEM_cert_to_DER_cert(authority.certificate.read_text())
    assert facts_of_certificate(der).alternatives == frozenset()


def test_no_mutilated_certificate_is_an_internal_error(authority: Authority) -> None:
    der = der_of(authority.issue("broker"))
    for cut in range(len(der)):
        with pytest.raises(InvalidDer):
            facts_of_certificate(der[:cut])
    for at in range(0, len(der), 3):
        try:
            facts_of_certificate(der[:at] + bytes([der[at] ^ 0xFF]) + der[at + 1 :])
        except InvalidDer:
            pass


def facts(subject: str = "CN=a", *names: str) -> CertificateFacts:
    return CertificateFacts(subject, frozenset(name.encode() for name in names), names, 0)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("one.org", True),
        ("ONE.org", True),
        ("one.org.", True),
        ("two.org", False),
        ("x.example.com", True),
        ("x.y.example.com", False),
        ("example.com", False),
        ("com", False),
        ("", False),
    ],
)
def test_the_host_of_a_certificate(host: str, *, expected: bool) -> None:
    assert serves(facts("CN=a", "one.org", "*.example.com"), host) is expected


def test_what_may_take_its_place() -> None:
    old = [facts("CN=a", "one", "two")]
    same, more = [facts("CN=a", "two", "one")], [facts("CN=a", "one", "two", "three")]
    less, other = [facts("CN=a", "one")], [facts("CN=b", "one", "two")]

    def refused(new: list[CertificateFacts], *, dn: bool = False, san: bool = False) -> bool:
        return forbidden_change(old, new, dn=dn, san=san) is not None

    assert not refused(same)
    assert not refused(more)
    assert refused(less)
    assert not refused(less, san=True)
    assert refused(less, dn=True)
    assert refused(other)
    assert not refused(other, dn=True)
    assert refused(other, san=True)
    assert refused([*old, *other], dn=True, san=True)


def test_keys_with_their_certificates(authority: Authority) -> None:
    one, two = authority.issue("one"), authority.issue("two")
    chain = authority.certificate.read_text()
    key_1, leaf_1 = one.key.read_text(), one.certificate.read_text() + chain
    key_2, leaf_2 = two.key.read_text(), two.certificate.read_text()
    expected = [{key_1, leaf_1}, {key_2, leaf_2}]
    for text in (key_1 + leaf_1 + "a note\n" + key_2 + leaf_2, leaf_1 + key_1 + leaf_2 + key_2):
        found = identities(text.encode())
        assert len(found) == 2
        for identity, parts in zip(found, expected, strict=True):
            assert all(part in identity for part in parts)
    assert identities((key_1 + leaf_1).encode()) == [key_1 + leaf_1]
    assert identities((leaf_1 + key_1).encode()) == [leaf_1 + key_1]
