"""Subjects of certificates as text, beside Java's, and bytes that are not certificates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.machines.security.der import InvalidDer, oid_text, read_element
from headrace.machines.security.distinguished_names import (
    CERTIFICATE_BYTES_MAX,
    name_text,
    subject_of_certificate,
)
from unit.machines.security.der_names import CN, ORG, OU, UTF8, C, certificate, element, name, oid

RECORDED = [
    line.split(" ", 1)
    for line in Path(__file__).with_name("names_of_java.txt").read_text().splitlines()
    if not line.startswith("#")
]


@pytest.mark.parametrize(("der", "text"), RECORDED)
def test_names_as_java_writes_them(der: str, text: str) -> None:
    assert name_text(bytes.fromhex(der)) == json.loads(text)


class TestCertificates:
    SUBJECT = name([[(C, 0x13, b"DE")], [(ORG, UTF8, b"Acme")], [(OU, UTF8, b"Admins"), (CN, UTF8, b"ada")]])

    @pytest.mark.parametrize("has_version", [True, False])
    def test_the_subject_of_a_certificate(self, has_version: bool) -> None:
        der = certificate(self.SUBJECT, has_version=has_version)
        assert subject_of_certificate(der) == "OU=Admins+CN=ada,O=Acme,C=DE"

    def test_one_without_a_subject(self) -> None:
        assert subject_of_certificate(certificate(name([]))) == ""

    def test_a_comma_in_a_common_name_is_not_a_part_of_the_name(self) -> None:
        der = certificate(name([[(CN, UTF8, b"evil,OU=Admins")]]))
        assert subject_of_certificate(der) == r"CN=evil\,OU\=Admins"

    @pytest.mark.parametrize(
        "der",
        [
            b"",
            b"\x30",
            b"\x30\x80\x00\x00",
            element(0x30, b""),
            element(0x31, b""),
            certificate(SUBJECT) + b"\0",
            certificate(SUBJECT)[:-1],
            certificate(element(0x31, b"")),
            certificate(element(0x30, element(0x31, b""))),
            bytes(CERTIFICATE_BYTES_MAX + 1),
            certificate(name([[(CN, UTF8, b"\xff")]])),
            certificate(name([[(CN, 0x14, b"\xe4")]])),
            certificate(name([[(CN, UTF8, b"x")]] * 101)),
            # values that are longer than what they are in, and shorter than the certificate
            certificate(element(0x30, element(0x31, element(0x30, oid(CN) + b"\x0c\x05ab")))),
            certificate(element(0x30, b"\x31\x07" + element(0x30, oid(CN))[:-1])),
        ],
    )
    def test_what_is_refused(self, der: bytes) -> None:
        with pytest.raises(InvalidDer):
            subject_of_certificate(der)


class TestDer:
    @pytest.mark.parametrize(
        "der",
        [
            b"\x1f\x01\x00",  # a tag of two bytes
            b"\x04\x81\x01x",  # lengths that are longer than they have to be
            b"\x04\x82\x00\x80" + bytes(128),
            b"\x04\x80",
            b"\x04\x85\x00\x00\x00\x00\x01x",
            b"\x04\x84\x7f\xff\xff\xff",
            b"\x04\x82\x01",
            b"\x04\x02x",
        ],
    )
    def test_elements_that_are_not_der(self, der: bytes) -> None:
        with pytest.raises(InvalidDer):
            read_element(der)

    @pytest.mark.parametrize(
        "text", ["2.5.4.3", "1.2.840.113549.1.9.1", "0.9.2342", "2.999.1", "1.39.127.128.16384"]
    )
    def test_object_identifiers(self, text: str) -> None:
        assert oid_text(read_element(oid(text))) == text

    @pytest.mark.parametrize("content", [b"", b"\x80\x01", b"\x55\x80\x01", b"\x55\x84", bytes(65)])
    def test_object_identifiers_that_are_refused(self, content: bytes) -> None:
        with pytest.raises(InvalidDer):
            oid_text(read_element(element(0x06, content)))
