"""PEM, the one format of certificates and keys that is read, and how to get there from Java's stores.

Client and broker share it. Nothing here reads a file.
"""

_BEGIN_CERTIFICATE = (b"-----BEGIN CERTIFICATE-----", b"-----BEGIN TRUSTED CERTIFICATE-----")

# What turns one of Java's stores into PEM, by what is kept in it and by its format
_CONVERSIONS = {
    ("truststore", "JKS"): "keytool -list -rfc -keystore {path} > ca.pem",
    ("truststore", "PKCS12"): "openssl pkcs12 -in {path} -nokeys -out ca.pem",
    ("keystore", "JKS"): "keytool -importkeystore -srckeystore {path} -destkeystore {name}.p12 "
    "-deststoretype PKCS12 && openssl pkcs12 -in {name}.p12 -out {name}.pem",
    ("keystore", "PKCS12"): "openssl pkcs12 -in {path} -out {name}.pem",
}


def conversion(kept: str, form: str, path: str, name: str) -> str:
    """The command that makes PEM of a keystore or truststore in format JKS or PKCS12; `name`: what the new
    file is for.
    """
    return _CONVERSIONS[kept, form].format(path=path, name=name)


def store_format(data: bytes) -> str | None:
    """PEM, JKS or PKCS12; None: it is none of these."""
    if b"-----BEGIN " in data:
        return "PEM"
    if data.startswith((b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")):
        return "JKS"
    return "PKCS12" if data.startswith((b"\x30\x82", b"\x30\x83", b"\x30\x80")) else None


def has_certificate(data: bytes) -> bool:
    return any(mark in data for mark in _BEGIN_CERTIFICATE)


def certificates_only(data: bytes) -> str:
    """The certificates among the PEM blocks: tools write notes between them, in any encoding."""
    text = data.decode("ascii", "replace")
    blocks = []
    for kind in ("CERTIFICATE", "TRUSTED CERTIFICATE"):
        begin, end = f"-----BEGIN {kind}-----", f"-----END {kind}-----"
        for part in text.split(begin)[1:]:
            blocks.append(begin + part.partition(end)[0] + end + "\n")
    return "".join(blocks)
