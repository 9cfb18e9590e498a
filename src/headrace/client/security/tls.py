"""TLS: the context that the ssl.* settings describe, and a connection's stream as bytes in and bytes out.

Only PEM is supported, as a file or as text. Python reads no JKS and no PKCS #12; for these the error names
the command that converts them to PEM. Files are read once, when a client is created, so that a wrong file is
an error then and not at the first connection.

    begin --handshake--> open --close_notify or end--> closed

Ciphertext from the socket goes into `room()`, plaintext comes out of `read_into`; `sealed` gives what has to
be written, be it data or the handshake's own messages. What is said before the handshake is over waits. An
error of TLS is a `TlsFailed` that says whose certificate or setting is to blame.
"""

import os
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path

from headrace.client.errors import TlsFailed, describe_peer
from headrace.client.settings.configuration import Configuration, InvalidSetting
from headrace.machines.security.pem import certificates_only, conversion, has_certificate, store_format
from headrace.protocol.parts import Part

# Room for what comes from the socket: some of TLS's largest records, 16 KiB each.
CIPHERTEXT_BYTES = 64 * 1024


class Tls:
    """The TLS configuration that all connections of a client share: trusted authorities and own
    certificate.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context

    def stream(self, host: str) -> "TlsStream":
        return TlsStream(self._context, host)


class TlsStream:
    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self.is_open = False
        self.is_closed = False  # the peer will say nothing more
        self._host = host
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._buffer = bytearray(CIPHERTEXT_BYTES)
        self._first = b""  # the first bytes of the peer: they tell a stranger's name
        self._early: list[Part] = []
        try:
            self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        except ValueError as error:
            raise TlsFailed(f"{host!r} is not a name that a certificate can have: {error}") from error

    def begin(self) -> None:
        self._shake_hands()

    def sealed(self, parts: list[Part]) -> list[Part]:
        """What to write to the socket now, these parts included if the handshake is over."""
        if not self.is_open:
            self._early += parts
        elif parts:
            self._seal(parts)
        return [self._outgoing.read()] if self._outgoing.pending else []

    def room(self) -> memoryview:
        """Where ciphertext goes."""
        return memoryview(self._buffer)

    def received(self, count: int) -> None:
        """`count` bytes were put into `room()`."""
        data = memoryview(self._buffer)[:count]
        if len(self._first) < 8 and not self.is_open:
            self._first += bytes(data[:8])
        self._incoming.write(data)
        if not self.is_open:
            self._shake_hands()

    def read_into(self, room: memoryview) -> int:
        """Takes plaintext out; 0 when there is no more for now."""
        if not self.is_open or self.is_closed:
            return 0
        try:
            # typeshed does not know that with a buffer it is the count
            count: int = self._tls.read(len(room), room)  # type: ignore[assignment]
        except ssl.SSLWantReadError:
            return 0
        except ssl.SSLError as error:
            raise explained(error, self._host, b"") from error
        self.is_closed = count == 0
        return count

    def end(self) -> None:
        """Says goodbye: close_notify is in what `sealed` gives next."""
        if not self.is_open:
            return
        try:
            self._tls.unwrap()
        except ssl.SSLError:
            # the peer's own close_notify is not waited for; one that broke TLS gets no goodbye
            self.is_closed = True

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError as error:
            raise explained(error, self._host, self._first) from error
        self.is_open = True
        early, self._early = self._early, []
        if early:
            self._seal(early)

    def _seal(self, parts: list[Part]) -> None:
        # joined, since each write makes a record of its own
        data = b"".join(parts)  # type: ignore[arg-type]  # clients send bytes
        try:
            self._tls.write(data)
        except ssl.SSLError as error:
            raise explained(error, self._host, b"") from error


# X509_V_ERR_…: what is wrong with the broker's certificate, and what to do
_VERIFY: dict[int, tuple[str, str]] = {
    9: ("is not valid yet", "Check the clocks of this machine and of the broker."),
    10: ("has expired", "Give the broker a new certificate; if it has one, check this machine's clock."),
    23: ("was revoked", "Give the broker a new certificate."),
}
_UNTRUSTED = frozenset({2, 18, 19, 20, 21})
_OTHER_NAME = frozenset({62, 64})

# What the broker's alert says about us: the end of OpenSSL's reason, the sentence, the advice
_ALERTS: tuple[tuple[str, str, str], ...] = (
    (
        "ALERT_CERTIFICATE_REQUIRED",
        "the broker requires a client certificate",
        "Set ssl.keystore.location, or ssl.certificate.location and ssl.key.location.",
    ),
    (
        "ALERT_UNKNOWN_CA",
        "the broker does not trust the authority that issued our certificate",
        "Have it signed by an authority in the broker's truststore.",
    ),
    ("ALERT_CERTIFICATE_EXPIRED", "our certificate has expired", "Have a new one issued."),
    ("ALERT_CERTIFICATE_REVOKED", "our certificate was revoked", "Have a new one issued."),
    (
        "ALERT_CERTIFICATE_UNKNOWN",
        "the broker does not accept our certificate",
        "The broker's log has the reason; it may not trust the authority that issued it.",
    ),
    (
        # Java sends this also if there is no certificate
        "ALERT_BAD_CERTIFICATE",
        "the broker does not accept our certificate, or requires one",
        "If you set none, set ssl.keystore.location; otherwise the broker's log has the reason.",
    ),
    (
        "ALERT_PROTOCOL_VERSION",
        "the broker supports none of our versions of TLS",
        "Enable TLS 1.2 or 1.3 in the broker, or check ssl.enabled.protocols.",
    ),
    (
        "ALERT_HANDSHAKE_FAILURE",
        "the broker refused the TLS handshake",
        "It may require a client certificate (ssl.keystore.location), or other ssl.cipher.suites.",
    ),
    (
        "ALERT_UNRECOGNIZED_NAME",
        "the broker does not know this host name",
        "Connect with a name that is in its certificate.",
    ),
)

_NOT_TLS = ("WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")


def explained(error: ssl.SSLError, host: str, first: bytes) -> TlsFailed:
    """An error of the stream to `host`; `first` are the peer's first bytes if nothing else has come yet."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _certificate(error, host)
    reason = error.reason or ""
    for ending, said, advice in _ALERTS:
        if reason.endswith(ending):
            return TlsFailed(f"{said} ({host})", advice=advice)
    if reason in _NOT_TLS and first:
        peer = describe_peer(first) or "something else"
        return TlsFailed(
            f"the peer at {host} answered with {peer}, not with TLS",
            advice="Check the port; for a plaintext listener set security.protocol to PLAINTEXT or "
            "SASL_PLAINTEXT.",
        )
    return TlsFailed(f"TLS with {host} failed: {reason.replace('_', ' ').lower() or error}")


def _certificate(error: ssl.SSLCertVerificationError, host: str) -> TlsFailed:
    whose = f"the certificate of {host}"
    if error.verify_code in _UNTRUSTED:
        return TlsFailed(
            f"{whose} is not trusted: {error.verify_message}",
            advice="Set ssl.ca.location (or ssl.truststore.location) to a PEM file with the authority that "
            "issued it.",
        )
    if error.verify_code in _OTHER_NAME:
        return TlsFailed(
            f"{whose} was issued for another name: {error.verify_message}",
            advice="Connect with a name that is in the certificate, or issue one with this name as a subject "
            "alternative name; ssl.endpoint.identification.algorithm=none turns the check off.",
        )
    said, advice = _VERIFY.get(error.verify_code, (f"is not accepted: {error.verify_message}", ""))
    return TlsFailed(f"{whose} {said}", advice=advice)


_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def tls_context(configuration: Configuration) -> ssl.SSLContext:
    """The context of all connections; InvalidSetting names the setting that is wrong."""
    ready = configuration.given_object("ssl.context")
    if ready is not None:
        if not isinstance(ready, ssl.SSLContext):
            raise InvalidSetting(f"ssl_context must be an ssl.SSLContext, not a {type(ready).__name__}")
        others = sorted(name for name in configuration.given - {"ssl.context"} if name.startswith("ssl."))
        if others:
            raise InvalidSetting(f"{others[0]} cannot be used together with ssl_context, which replaces it")
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
        raise InvalidSetting("ssl.enabled.protocols must be TLSv1.2, TLSv1.3 or both")
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
            contents = [data for data in contents if has_certificate(data)]
            if not contents:
                raise InvalidSetting(f"{name}: no file in {path} has a PEM certificate")
        for data in contents:
            _load_authorities(context, name, data)


def _load_authorities(context: ssl.SSLContext, name: str, data: bytes) -> None:
    if not has_certificate(data):
        raise InvalidSetting(f"{name} has no PEM certificate")
    try:
        context.load_verify_locations(cadata=certificates_only(data))
    except ssl.SSLError as error:
        raise InvalidSetting(f"{name} has a certificate that cannot be read: {error.reason}") from error


# Who we are


def _identify(context: ssl.SSLContext, configuration: Configuration) -> None:
    _forbid_store_password(configuration, "keystore")
    store = configuration.optional_text("ssl.keystore.location")
    certificate = configuration.optional_text("ssl.certificate.location")
    chain = configuration.optional_text("ssl.keystore.certificate.chain")
    if sum(source is not None for source in (store, certificate, chain)) > 1:
        raise InvalidSetting(
            "the client's certificate is set twice: use only one of ssl.keystore.location, "
            "ssl.certificate.location and ssl.keystore.certificate.chain"
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
                raise InvalidSetting(f"{name} needs a certificate: set ssl.certificate.location too")


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
            raise InvalidSetting("the client's private key does not match its certificate") from error
        if password is not None:
            raise InvalidSetting(
                "the client's certificate and key cannot be read; ssl.key.password may be wrong"
            ) from error
        raise InvalidSetting("the client's certificate or private key is not in PEM format") from error


def _password_source(password: str | None) -> Callable[[], str]:
    """OpenSSL asks only if the key is encrypted; without a function it would ask at the terminal."""

    def source() -> str:
        if password is None:
            raise InvalidSetting("the client's private key is encrypted: set ssl.key.password")
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
    form = store_format(data) or configuration.text(f"ssl.{kept}.type").upper()
    if form != "PEM":
        command = conversion(kept, form, str(path), "client")
        raise InvalidSetting(
            f"{name}: {path} is in {form} format; only PEM is read here. Convert it: {command}"
        )
    return data


def _forbid_store_password(configuration: Configuration, kept: str) -> None:
    """A password of a store says that it is one of Java's; PEM files have none."""
    name = f"ssl.{kept}.password"
    location = configuration.optional_text(f"ssl.{kept}.location")
    if configuration.optional_text(name) is None:
        return
    if location is not None:
        _contents(f"ssl.{kept}.location", Path(location).expanduser(), kept, configuration)
    raise InvalidSetting(f"{name} has no effect with PEM; for an encrypted key, set ssl.key.password")
