"""Certificates for development nodes, made by the `openssl` command: an authority, and one per node.

Python's standard library can use keys, but neither make them nor sign with them, and a library that can is
not among the dependencies of the broker (docs/decisions/0015-certificates-of-up.md).
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import click

AUTHORITY_DAYS = 3650
NODE_DAYS = 825  # the longest that all systems accept
RENEW_BEFORE_S = 30 * 24 * 3600  # a start makes a new one if less time is left
OPENSSL_S_MAX = 60.0
_WORK = ".new-"  # begins the name of a directory for files that are not complete
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")

# Instead of the system's openssl.cnf, which may say anything.
_SETTINGS = """\
[req]
distinguished_name = name
prompt = no
x509_extensions = authority
[name]
CN = headrace up
[authority]
basicConstraints = critical, CA:TRUE, pathlen:0
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[node]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectAltName = DNS:localhost, IP:127.0.0.1, IP:::1
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""


class NoCertificates(click.ClickException):
    """openssl is missing, or did not do it."""


class Certificates:
    """The files under a directory that only its owner reads: ca.pem, ca.key, node-1.pem, ….

    A file gets its name when it is complete, and the key of the authority before its certificate: a stop in
    between leaves nothing that a later start takes for complete.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.authority = directory / "ca.pem"
        self._authority_key = directory / "ca.key"

    def node(self, number: int) -> Path:
        """A file with key and certificate."""
        return self._directory / f"node-{number}.pem"

    def prepare(self, nodes: int, *, is_new_authority: bool = False) -> None:
        """Makes what is missing, or expires soon; `is_new_authority`: all of it. NoCertificates: the key of
        the authority is lost, and there is something to sign.
        """
        wanted = [number for number in range(1, nodes + 1) if not _is_valid(self.node(number))]
        has_authority = not is_new_authority and _is_valid(self.authority)
        if has_authority and not wanted:
            return
        if has_authority:
            self._check_key(wanted[0])
        for left in self._directory.glob(f"{_WORK}*"):  # of a start that was killed
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=self._directory, prefix=_WORK) as place:
            work = Path(place)
            (work / "openssl.cnf").write_text(_SETTINGS)
            if not has_authority:
                self._make_authority(work)
                wanted = list(range(1, nodes + 1))
            for number in wanted:
                self._make_node(work, number)

    def _check_key(self, number: int) -> None:
        if not self._authority_key.exists():
            fault = "is missing"
        else:
            own = _run("pkey", "-in", self._authority_key, "-pubout")
            certified = _run("x509", "-in", self.authority, "-noout", "-pubkey")
            if own.returncode == 0 and own.stdout == certified.stdout:
                return
            fault = f"is not the key of {self.authority}"
        raise NoCertificates(
            f"{self._authority_key} {fault}, so that the certificate of node {number} cannot be signed. "
            "Restore the file, or make a new authority with --new-authority: then copies of ca.pem that "
            "clients have must be replaced, too."
        )

    def _make_authority(self, work: Path) -> None:
        for signed in self._directory.glob("node-*.pem"):  # by an earlier one, which nobody trusts any more
            signed.unlink()
        key, certificate = work / "ca.key", work / "ca.pem"
        files = ("-config", work / "openssl.cnf", "-keyout", key, "-out", certificate)
        _openssl("req", "-x509", *_NEW_KEY, *files, "-days", AUTHORITY_DAYS, "-sha256")
        key.rename(self._authority_key)
        certificate.rename(self.authority)

    def _make_node(self, work: Path, number: int) -> None:
        key, request, certificate, both = (
            work / f"node-{number}{ending}" for ending in (".key", ".csr", ".crt", ".pem")
        )
        settings = work / "openssl.cnf"
        files = ("-config", settings, "-keyout", key, "-out", request)
        _openssl("req", "-new", *_NEW_KEY, *files, "-subj", f"/CN=node-{number}")
        signer = ("-CA", self.authority, "-CAkey", self._authority_key)
        serial = ("-set_serial", f"0x{os.urandom(16).hex()}", "-days", NODE_DAYS, "-sha256")
        extensions = ("-extfile", settings, "-extensions", "node")
        _openssl("x509", "-req", "-in", request, *signer, *serial, *extensions, "-out", certificate)
        descriptor = os.open(both, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w") as file:
            file.write(key.read_text() + certificate.read_text())
        both.rename(self.node(number))


def _is_valid(path: Path) -> bool:
    """Whether there is a certificate in the file that does not expire soon."""
    if not path.exists():
        return False
    return _run("x509", "-in", path, "-noout", "-checkend", RENEW_BEFORE_S).returncode == 0


def _openssl(*words: object) -> None:
    done = _run(*words)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["(it said nothing)"]
        raise NoCertificates(f"openssl {words[0]} failed: {said[-1]}.")


def _run(*words: object) -> "subprocess.CompletedProcess[str]":
    """Whatever it writes is for its owner alone."""
    command = ["openssl", *map(str, words)]
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=OPENSSL_S_MAX,
            umask=0o077,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except FileNotFoundError:
        raise NoCertificates(
            "--secure makes certificates with the openssl command, which was not found. Install it, as with "
            "`apt install openssl`, `dnf install openssl` or `brew install openssl`."
        ) from None
    except subprocess.TimeoutExpired:
        raise NoCertificates(f"openssl {words[0]} took longer than {OPENSSL_S_MAX:g} s.") from None
