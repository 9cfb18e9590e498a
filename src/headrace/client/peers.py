"""Strangers on a broker's port, told by the first bytes they send."""


def describe_peer(first: bytes) -> str | None:
    """What a peer that does not speak what we expected seems to be."""
    if first[:1] in (b"\x15", b"\x16") and first[1:2] == b"\x03":
        return "TLS"
    if first[:4] in (b"HTTP", b"<htm", b"<!DO"):
        return "HTTP"
    return "SSH" if first[:4] == b"SSH-" else None
