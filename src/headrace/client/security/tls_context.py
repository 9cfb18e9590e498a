"""TLS context from the ssl.* settings: trusted authorities, own certificate, versions and ciphers.

PEM only, as a file or as text: Python reads no JKS and no PKCS #12, so who has one of those is told the
command that turns it into PEM. Files are read here, once, when a client is made; a wrong one is an error
then and not at the first connection.
"""

import os
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path

from headrace.client.settings.configuration import Configuration, InvalidSetting

_BEGIN_CERTIFICATE = (b"-----BEGIN CERTIFICATE-----", b"-----BEGIN TRUSTED CERTIFICATE-----")
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

# What turns a Java keystore into PEM, by what is kept in it and by its format
_CONVERSIONS = {
    ("truststore", "JKS"): "keytool -list -rfc -keystore {path} > ca.pem",
    ("truststore", "PKCS12"): "openssl pkcs12 -in {path} -nokeys -out ca.pem",
    ("keystore", "JKS"): "keytool -importkeystore -srckeystore {path} -destkeystore client.p12 "
    "-deststoretype PKCS12 && openssl pkcs12 -in client.p12 -out client.pem",
    ("keystore", "PKCS12"): "openssl pkcs12 -in {path} -out client.pem",
}


def tls_context(configuration: Configuration) -> ssl.SSLContext:
    """The context of all connections; InvalidSetting names the setting that is wrong."""
    ready = configuration.given_object("ssl.context")
    if ready is not None:
        if not isinstance(ready, ssl.SSLContext):
            raise InvalidSetting(f"ssl_context must be an ssl.SSLContext, not a {type(ready).__name__}")
        others = sorted(name for name in configuration.given - {"ssl.context"} if name.startswith("ssl."))
        if others:
            raise InvalidSetting(f"ssl_context says all; {others[0]} cannot be given beside it")
        return ready
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.options |= ssl.OP_NO_RENEGOTIATION
    _choose_versions(context, configuration)
    _choose_ciphers(context, configuration)
    _trust(context, configuration)
    _identify(context, configuration)
    algorithm = configuration.text("ssl.endpoint.identification.algorithm").lower()
    if algorithm not in ("https", "none", ""):
        raise InvalidSetting("ssl.endpoint.identification.algorithm must be https, none or empty")
    context.check_hostname = algorithm == "https"
    if not configuration.flag("enable.ssl.certificate.verification"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _choose_versions(context: ssl.SSLContext, configuration: Configuration) -> None:
    wanted = configuration.items_of("ssl.enabled.protocols")
    known = [_VERSIONS[name] for name in wanted if name in _VERSIONS]
    if not known or len(known) != len(wanted):
        raise InvalidSetting("ssl.enabled.protocols must be some of TLSv1.2, TLSv1.3")
    context.minimum_version, context.maximum_version = min(known), max(known)


def _choose_ciphers(context: ssl.SSLContext, configuration: Configuration) -> None:
    suites = configuration.items_of("ssl.cipher.suites")
    if suites:
        try:
            context.set_ciphers(":".join(suites))
        except ssl.SSLError:
            raise InvalidSetting(
                "ssl.cipher.suites has no suite of TLS 1.2 that OpenSSL knows (`openssl ciphers` lists them)"
            ) from None


# Whom we trust


def _trust(context: ssl.SSLContext, configuration: Configuration) -> None:
    _forbid_store_password(configuration, "truststore")
    text = configuration.optional_text("ssl.truststore.certificates")
    places = [
        (name, _path(configuration, name))
        for name in ("ssl.truststore.location", "ssl.ca.location")
        if configuration.optional_text(name) not in (None, "probe")  # librdkafka's word for the system's
    ]
    if text is None and not places:
        context.load_default_certs()
        return
    if text is not None:
        _load_authorities(context, "ssl.truststore.certificates", text.encode())
    for name, path in places:
        files = sorted(entry for entry in path.iterdir() if entry.is_file()) if path.is_dir() else [path]
        contents = [_contents(name, file, "truststore", configuration) for file in files]
        if path.is_dir():
            contents = [data for data in contents if _has_certificate(data)]
            if not contents:
                raise InvalidSetting(f"{name}: no file in {path} has a PEM certificate")
        for data in contents:
            _load_authorities(context, name, data)


def _has_certificate(data: bytes) -> bool:
    return any(mark in data for mark in _BEGIN_CERTIFICATE)


def _load_authorities(context: ssl.SSLContext, name: str, data: bytes) -> None:
    if not _has_certificate(data):
        raise InvalidSetting(f"{name} has no PEM certificate")
    try:
        context.load_verify_locations(cadata=_certificates_only(data))
    except ssl.SSLError as error:
        raise InvalidSetting(f"{name} has a certificate that cannot be read: {error.reason}") from error


def _certificates_only(data: bytes) -> str:
    """The PEM blocks: tools write notes between them, in any encoding."""
    text = data.decode("ascii", "replace")
    blocks = []
    for kind in ("CERTIFICATE", "TRUSTED CERTIFICATE"):
        begin, end = f"-----BEGIN {kind}-----", f"-----END {kind}-----"
        for part in text.split(begin)[1:]:
            blocks.append(begin + part.partition(end)[0] + end + "\n")
    return "".join(blocks)


# Who we are


def _identify(context: ssl.SSLContext, configuration: Configuration) -> None:
    _forbid_store_password(configuration, "keystore")
    store = configuration.optional_text("ssl.keystore.location")
    certificate = configuration.optional_text("ssl.certificate.location")
    chain = configuration.optional_text("ssl.keystore.certificate.chain")
    if sum(source is not None for source in (store, certificate, chain)) > 1:
        raise InvalidSetting(
            "our certificate is given twice: ssl.keystore.location, ssl.certificate.location and "
            "ssl.keystore.certificate.chain exclude each other"
        )
    password = configuration.optional_text("ssl.key.password")
    if store is not None:
        path = _path(configuration, "ssl.keystore.location")
        _contents("ssl.keystore.location", path, "keystore", configuration)
        _load_identity(context, path, path, password)
    elif certificate is not None:
        path = _path(configuration, "ssl.certificate.location")
        has_own_key = configuration.optional_text("ssl.key.location") is not None
        key = _path(configuration, "ssl.key.location") if has_own_key else path
        _contents("ssl.certificate.location", path, "keystore", configuration)
        _load_identity(context, path, key, password)
    elif chain is not None:
        key_text = configuration.optional_text("ssl.keystore.key")
        if key_text is None:
            raise InvalidSetting("ssl.keystore.certificate.chain needs ssl.keystore.key")
        _load_identity_text(context, chain, key_text, password)
    else:
        for name in ("ssl.key.location", "ssl.keystore.key"):
            if configuration.optional_text(name) is not None:
                raise InvalidSetting(f"{name} is given, but no certificate that belongs to it")


def _load_identity_text(context: ssl.SSLContext, chain: str, key: str, password: str | None) -> None:
    """OpenSSL's loader takes files only, so the text becomes one for a moment, readable by us alone."""
    descriptor, name = tempfile.mkstemp(suffix=".pem")
    path = Path(name)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{chain}\n{key}\n")
        _load_identity(context, path, path, password)
    finally:
        path.unlink()


def _load_identity(context: ssl.SSLContext, certificate: Path, key: Path, password: str | None) -> None:
    try:
        context.load_cert_chain(certificate, key, _password_source(password))
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise InvalidSetting("our private key does not belong to our certificate") from error
        if password is not None:
            raise InvalidSetting(
                "our certificate and key cannot be read; ssl.key.password may be wrong"
            ) from error
        raise InvalidSetting("our certificate or private key is not in PEM format") from error


def _password_source(password: str | None) -> Callable[[], str]:
    """OpenSSL asks only if the key is encrypted; without a function it would ask at the terminal."""

    def source() -> str:
        if password is None:
            raise InvalidSetting("our private key is encrypted: give ssl.key.password")
        return password

    return source


# Files


def _path(configuration: Configuration, name: str) -> Path:
    return Path(configuration.text(name)).expanduser()


def _contents(name: str, path: Path, kept: str, configuration: Configuration) -> bytes:
    """What is in a file; one of Java's formats is refused with the way out of it."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidSetting(f"{name}: cannot read {path}: {error.strerror}") from error
    declared = configuration.text(f"ssl.{kept}.type").upper()
    form = "PEM" if b"-----BEGIN " in data else _java_format(data) or declared
    if form != "PEM":
        command = _CONVERSIONS[kept, form].format(path=path)
        raise InvalidSetting(
            f"{name}: {path} is in {form} format; only PEM is read here. Convert it: {command}"
        )
    return data


def _java_format(data: bytes) -> str | None:
    if data.startswith((b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")):
        return "JKS"
    return "PKCS12" if data.startswith((b"\x30\x82", b"\x30\x83", b"\x30\x80")) else None


def _forbid_store_password(configuration: Configuration, kept: str) -> None:
    """A password of a store says that it is one of Java's; PEM files have none."""
    name = f"ssl.{kept}.password"
    location = configuration.optional_text(f"ssl.{kept}.location")
    if configuration.optional_text(name) is None:
        return
    if location is not None:
        _contents(f"ssl.{kept}.location", Path(location).expanduser(), kept, configuration)
    raise InvalidSetting(f"{name} has no meaning with PEM; a key's password is ssl.key.password")
