"""The TLS context of a listener, from its settings and the PEM files that they name.

A file that cannot be used is an error at the start, which names the setting.
"""

import os
import ssl
import tempfile
from collections.abc import Callable

from headrace.machines.security.pem import certificates_only, conversion, has_certificate, store_format
from headrace.node.listener_security import TlsSettings
from headrace.server.listeners import CannotListen

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


def tls_context(settings: TlsSettings) -> ssl.SSLContext:
    """CannotListen names the setting that is wrong."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
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
    context.verify_mode = _VERIFY[settings.client_auth]
    if settings.client_auth != "none":
        # a ticket would let a client come back whose certificate is not trusted any more
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        _trust(context, settings)
    _identify(context, settings)
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
    if settings.keystore is not None:
        name = settings.names["ssl.keystore.location"]
        _contents(name, settings.keystore, "keystore")
        _load_identity(context, name, settings.keystore, settings)
        return
    # OpenSSL's loader takes files only, so the text becomes one for a moment, readable by us alone
    descriptor, path = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{settings.certificates}\n{settings.key}\n")
        _load_identity(context, settings.names["ssl.keystore.certificate.chain"], path, settings)
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
