"""Why a TLS handshake is refused or fails, in words for the operator's log."""

import ssl

# OpenSSL takes memory for the hello that a client announces, before any of it has come. The largest that are
# seen, with keys for quantum computers, have some kilobytes.
HELLO_BYTES_MAX = 16 * 1024

HANDSHAKE_RECORD, CLIENT_HELLO = 0x16, 0x01  # what TLS begins with
HELLO_BEGINS = 9  # so many bytes tell how long the hello is
_HTTP = (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE", b"PRI ")

# The end of OpenSSL's reason, and what it says about the client.
_REASONS = (
    ("PEER_DID_NOT_RETURN_A_CERTIFICATE", "the client has no certificate, and ssl.client.auth=required"),
    ("ALERT_UNKNOWN_CA", "the client does not trust the authority that issued our certificate"),
    ("ALERT_BAD_CERTIFICATE", "the client does not accept our certificate"),
    ("ALERT_CERTIFICATE_UNKNOWN", "the client does not accept our certificate"),
    ("ALERT_CERTIFICATE_EXPIRED", "our certificate has expired"),
    ("UNSUPPORTED_PROTOCOL", "the client has no version of TLS in ssl.enabled.protocols"),
    ("NO_SHARED_CIPHER", "client and broker have no cipher suite in common"),
)


def refusal_of_hello(first: bytes) -> str | None:
    """Why the first bytes of a client are not taken; None: they may begin a handshake."""
    if first[0] != HANDSHAKE_RECORD:
        is_http = first[:4] in _HTTP
        return (
            "an HTTP client on a TLS listener"
            if is_http
            else "a client without TLS on a TLS listener: check security.protocol"
        )
    if len(first) < HELLO_BEGINS:
        return None
    # A record has kind, version and length, and the message in it kind and length.
    if int.from_bytes(first[3:5], "big") < HELLO_BEGINS - 5:
        return "its hello comes in pieces of a few bytes"
    size = int.from_bytes(first[6:HELLO_BEGINS], "big")
    return f"a hello of {size} bytes" if first[5] == CLIENT_HELLO and size > HELLO_BYTES_MAX else None


def explain(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is not accepted: {error.verify_message}"
    reason = error.reason or ""
    for ending, said in _REASONS:
        if reason.endswith(ending):
            return said
    return reason.replace("_", " ").lower() or str(error)
