"""What OpenSSL's errors mean to people: whose fault it is, and what to do about it."""

import ssl

from headrace.client.errors import TlsFailed
from headrace.client.peers import describe_peer

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
        "the broker wants a certificate of ours",
        "Set ssl.keystore.location, or ssl.certificate.location and ssl.key.location.",
    ),
    (
        "ALERT_UNKNOWN_CA",
        "the broker does not trust who issued our certificate",
        "Have it signed by an authority in the broker's truststore.",
    ),
    ("ALERT_CERTIFICATE_EXPIRED", "our certificate has expired", "Have a new one issued."),
    ("ALERT_CERTIFICATE_REVOKED", "our certificate was revoked", "Have a new one issued."),
    (
        "ALERT_CERTIFICATE_UNKNOWN",
        "the broker does not accept our certificate",
        "The broker's log says why; it may not trust who issued it.",
    ),
    (
        # Java's word for none at all, too
        "ALERT_BAD_CERTIFICATE",
        "the broker does not accept our certificate, or wants one",
        "If there is none, set ssl.keystore.location; if there is, the broker's log says why.",
    ),
    (
        "ALERT_PROTOCOL_VERSION",
        "the broker speaks none of our versions of TLS",
        "Let the broker speak TLS 1.2 or 1.3, or look at ssl.enabled.protocols.",
    ),
    (
        "ALERT_HANDSHAKE_FAILURE",
        "the broker refused the TLS handshake",
        "It may want a certificate of ours (ssl.keystore.location), or other ssl.cipher.suites.",
    ),
    (
        "ALERT_UNRECOGNIZED_NAME",
        "the broker does not answer to this host name",
        "Use the name that its certificate has.",
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
            advice="Connect by a name in the certificate, or issue one that has this name as a subject "
            "alternative name; ssl.endpoint.identification.algorithm=none turns the check off.",
        )
    said, advice = _VERIFY.get(error.verify_code, (f"is not accepted: {error.verify_message}", ""))
    return TlsFailed(f"{whose} {said}", advice=advice)
