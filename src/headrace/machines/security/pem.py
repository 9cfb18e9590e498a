"""PEM, the one format of certificates and keys that is read, and how to get there from Java's stores.

Client and broker share it. Nothing here reads a file.
"""

import re

_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)
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
    """The certificates among the PEM blocks: tools write notes between them, in any encoding. The text is
    ASCII; what is not, inside a block, is in no certificate, and OpenSSL says so.
    """
    text = data.decode("ascii", "replace").replace("\ufffd", "?")
    blocks = []
    for kind in ("CERTIFICATE", "TRUSTED CERTIFICATE"):
        begin, end = f"-----BEGIN {kind}-----", f"-----END {kind}-----"
        for part in text.split(begin)[1:]:
            blocks.append(begin + part.partition(end)[0] + end + "\n")
    return "".join(blocks)


def identities(data: bytes) -> list[str]:
    """Private keys, each with its certificate and those of the authorities in between, in the order of the
    file. Each key comes before its certificates, or each behind them.
    """
    text = data.decode("ascii", "replace")
    blocks = [found[0] + "\n" for found in _BLOCK.finditer(text)]
    keys = [at for at, block in enumerate(blocks) if "PRIVATE KEY-----" in block]
    if len(keys) < 2:
        return ["".join(blocks)]
    begins = keys if keys[0] == 0 else [0, *(at + 1 for at in keys[:-1])]
    ends = [*begins[1:], len(blocks)]
    return ["".join(blocks[begin:end]) for begin, end in zip(begins, ends, strict=True)]
