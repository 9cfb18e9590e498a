"""TLS contexts from settings and the PEM files that they name: of a listener, and of connections to such
listeners of other nodes.

A file that cannot be used is an error at the start, which names the setting.
"""

import os
import ssl
import tempfile
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from headrace.machines.security.certificates import CertificateFacts, facts_of_certificate, serves
from headrace.machines.security.pem import (
    certificates_only,
    conversion,
    has_certificate,
    identities,
    store_format,
)
from headrace.node.listener_security import TlsSettings
from headrace.server.listeners import CannotListen

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


# A file that is replaced while it is read is read again.
READS_MAX = 3


class Certificates(NamedTuple):
    """What a listener shows to its clients."""

    context: ssl.SSLContext
    facts: list[CertificateFacts]  # of each certificate; the first is for clients that name no other host


def load_certificates(settings: TlsSettings) -> Certificates:
    """CannotListen names the setting that is wrong."""
    for _ in range(READS_MAX):
        loaded, pem = _read_certificates(settings)
        if _identity(settings)[2] == pem:  # what OpenSSL has read is what we have looked at
            return loaded
    name, path, _ = _identity(settings)
    raise CannotListen(f"{name}: {path} changes while it is read")


def _read_certificates(settings: TlsSettings) -> tuple[Certificates, bytes]:
    """And the text that they are from."""
    name, path, pem = _identity(settings)
    found = identities(pem)
    contexts = []
    for one in found:
        context = _server_context(settings)
        if path is not None and len(found) == 1:
            _load_identity(context, name, path, settings)
        else:
            _load_text(context, name, one, settings)
        contexts.append(context)
    facts = [_facts(name, one) for one in found]
    if len(contexts) > 1:
        others = list(zip(facts[1:], contexts[1:], strict=True))
        contexts[0].sni_callback = partial(_choose, facts[0], others)
    return Certificates(contexts[0], facts), pem


def _choose(
    first: CertificateFacts,
    others: list[tuple[CertificateFacts, ssl.SSLContext]],
    tls: ssl.SSLObject,
    host: str | None,
    context: ssl.SSLContext,
) -> None:
    """A client has said which host it wants to reach (SNI): it gets the first certificate for that one."""
    if host is None or serves(first, host):
        return
    for facts, other in others:
        if serves(facts, host):
            tls.context = other
            return


def _facts(name: str, identity: str) -> CertificateFacts:
    try:
        leaf = certificates_only(identity.encode()).partition("-----END CERTIFICATE-----")
        return facts_of_certificate(ssl.PEM_cert_to_DER_cert(leaf[0] + leaf[1]))
    except ValueError as error:  # also InvalidDer
        raise CannotListen(f"{name} has a certificate that cannot be read: {error}") from error


def _server_context(settings: TlsSettings) -> ssl.SSLContext:
    context = _context(ssl.PROTOCOL_TLS_SERVER, settings)
    context.verify_mode = _VERIFY[settings.client_auth]
    if settings.client_auth != "none":
        # a ticket would let a client come back whose certificate is not trusted any more
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        _trust(context, settings)
    return context


def outgoing_context(settings: TlsSettings) -> ssl.SSLContext:
    """For connections to other nodes. CannotListen names the setting that is wrong."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, settings)
    if settings.truststore is None and settings.authorities is None:
        context.load_default_certs()
    else:
        _trust(context, settings)
    context.check_hostname = settings.checks_names
    if settings.keystore is not None or settings.certificates is not None:
        _identify(context, settings)
    return context


def dialling_context(settings: TlsSettings | None) -> ssl.SSLContext:
    """For connections that only find out whether somebody listens: nothing is told there, and nothing that
    is heard is believed.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if settings is not None and (settings.keystore is not None or settings.certificates is not None):
        _identify(context, settings)  # a listener may let nobody in without
    return context


def _context(kind: int, settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(kind)
    context.options |= ssl.OP_NO_RENEGOTIATION
    versions = [_VERSIONS[name] for name in settings.versions]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    if settings.cipher_suites:
        try:
            context.set_ciphers(":".join(settings.cipher_suites))
        except ssl.SSLError:
            raise CannotListen(
                f"{settings.names['ssl.cipher.suites']} has no suite of TLS 1.2 that OpenSSL knows "
                "(`openssl ciphers` lists them)"
            ) from None
    return context


def _trust(context: ssl.SSLContext, settings: TlsSettings) -> None:
    if settings.authorities is not None:
        _load_authorities(
            context, settings.names["ssl.truststore.certificates"], settings.authorities.encode()
        )
    if settings.truststore is not None:
        name = settings.names["ssl.truststore.location"]
        _load_authorities(context, name, _contents(name, settings.truststore, "truststore"))


def _load_authorities(context: ssl.SSLContext, name: str, data: bytes) -> None:
    if not has_certificate(data):
        raise CannotListen(f"{name} has no PEM certificate")
    try:
        context.load_verify_locations(cadata=certificates_only(data))
    except ssl.SSLError as error:
        raise CannotListen(f"{name} has a certificate that cannot be read: {error.reason}") from error


def _identify(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """With the first certificate."""
    name, path, pem = _identity(settings)
    if path is not None:
        _load_identity(context, name, path, settings)
    else:
        _load_text(context, name, pem.decode(), settings)


def _identity(settings: TlsSettings) -> tuple[str, str | None, bytes]:
    """The setting, the file if it names one, and what is in it."""
    if settings.keystore is not None:
        name = settings.names["ssl.keystore.location"]
        return name, settings.keystore, _contents(name, settings.keystore, "keystore")
    text = f"{settings.certificates}\n{settings.key}\n"
    return settings.names["ssl.keystore.certificate.chain"], None, text.encode()


def _load_text(context: ssl.SSLContext, name: str, pem: str, settings: TlsSettings) -> None:
    """OpenSSL's loader takes files only, so the text becomes one for a moment, readable by us alone."""
    descriptor, path = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(pem)
        _load_identity(context, name, path, settings)
    finally:
        os.unlink(path)


def _load_identity(context: ssl.SSLContext, name: str, path: str, settings: TlsSettings) -> None:
    try:
        context.load_cert_chain(path, password=_password_source(settings))
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise CannotListen(f"{name}: the private key does not match the certificate") from error
        if settings.key_password is not None:
            password = settings.names["ssl.key.password"]
            raise CannotListen(
                f"{name}: certificate and key cannot be read; {password} may be wrong"
            ) from error
        raise CannotListen(f"{name} must have a certificate and its private key, in PEM format") from error
    except OSError as error:  # it was there a moment ago
        raise CannotListen(f"{name}: cannot read {path}: {error.strerror}") from error


def _password_source(settings: TlsSettings) -> Callable[[], str]:
    """OpenSSL asks only if the key is encrypted; without a function it would ask at the terminal."""

    def source() -> str:
        if settings.key_password is None:
            raise CannotListen(f"the private key is encrypted: set {settings.names['ssl.key.password']}")
        return settings.key_password

    return source


def _contents(name: str, path: str, kept: str) -> bytes:
    """What is in a file; one of Java's formats is refused with the way out of it."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise CannotListen(f"{name}: cannot read {path}: {error.strerror}") from error
    form = store_format(data)
    if form == "PEM":
        return data
    if form is None:
        raise CannotListen(f"{name}: {path} is not in PEM format")
    command = conversion(kept, form, path, "server")
    raise CannotListen(f"{name}: {path} is in {form} format; only PEM is read here. Convert it: {command}")
