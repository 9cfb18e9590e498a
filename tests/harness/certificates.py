"""An authority that issues certificates for tests, by the `openssl` command."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc")


class Certificate(NamedTuple):
    certificate: Path
    key: Path
    both: Path  # in one file, as Kafka's PEM keystores have it

    def encrypted_key(self, password: str) -> Path:
        path = self.key.with_suffix(".encrypted")
        _openssl("pkcs8", "-topk8", "-in", self.key, "-out", path, "-passout", f"pass:{password}")
        return path


class Authority:
    def __init__(self, directory: Path, name: str = "authority") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self.certificate = directory / f"{name}.pem"
        self._key = directory / f"{name}.key"
        files = ("-keyout", self._key, "-out", self.certificate)
        _openssl("req", "-x509", *_NEW_KEY, *files, "-days", "2", "-subj", f"/CN={name}")

    def issue(
        self, name: str, alternatives: str = "DNS:localhost,IP:127.0.0.1", days: int = 2
    ) -> Certificate:
        """For a server or a client; with negative days one that has expired."""
        base = self._directory / name
        request, certificate, key, both = (
            base.with_suffix(ending) for ending in (".csr", ".pem", ".key", ".both.pem")
        )
        names = ("-subj", f"/CN={name}", "-addext", f"subjectAltName={alternatives}")
        _openssl("req", *_NEW_KEY, "-keyout", key, "-out", request, *names)
        authority = ("-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial")
        days_text = ("-days", str(days))
        _openssl(
            "x509",
            "-req",
            "-in",
            request,
            *authority,
            "-out",
            certificate,
            *days_text,
            "-copy_extensions",
            "copy",
        )
        both.write_text(key.read_text() + certificate.read_text())
        return Certificate(certificate, key, both)


def _openssl(*arguments: str | Path) -> None:
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
