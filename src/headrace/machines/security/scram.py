"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): keys, credentials, and the broker's side of a login.

The client has its side in `client/security/sasl.py`, and shares the names, keys and encodings with this file.

    read_first(client-first) → challenge(credential) → finish(client-final) → over

A broker stores no password, only what proves the knowledge of it (`Credential`). Somebody who asks for a user
that does not exist gets a salt like everybody else, the same one each time, and is refused at the end: the
conversation does not tell which users there are. There is no channel binding, and no SASLprep, as in Kafka.
"""

import binascii
import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headrace.base.randomness import Randomness
from headrace.machines.security.errors import LoginRefused


class Mechanism(NamedTuple):
    """One of the two hashes, by its names in SASL, in Kafka's messages and in hashlib."""

    name: str
    id: int
    hash_name: str
    digest_bytes: int


SHA_256: Final = Mechanism("SCRAM-SHA-256", 1, "sha256", 32)
SHA_512: Final = Mechanism("SCRAM-SHA-512", 2, "sha512", 64)
MECHANISMS: Final = {mechanism.name: mechanism for mechanism in (SHA_256, SHA_512)}
MECHANISMS_BY_ID: Final = {mechanism.id: mechanism for mechanism in (SHA_256, SHA_512)}

ITERATIONS_MIN = 4096  # RFC 7677 §4
ITERATIONS_MAX = 16_384  # Kafka's bound; a login by PLAIN makes the broker do as many

NONCE_BYTES = 18  # 24 characters of text
SALT_BYTES = 24

# A client's message has a name and a nonce, or a nonce and a proof: some hundred bytes.
MESSAGE_BYTES_MAX = 8192

TOKEN_EXTENSION = "tokenauth"  # the name is the id of a delegation token (KIP-48)  # nosec B105  # a name

_PRINTABLE = re.compile(r"[\x21-\x2b\x2d-\x7e]+")
_NAME = re.compile(r"(?:[^\x00=,]|=2C|=3D)+")
_EXTENSION = re.compile(r"([A-Za-z]+)=([^\x00,]+)")
_BASE_36 = re.compile(rb"[0-9a-z]+")
_BASE_36_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def new_nonce(rng: Randomness) -> str:
    return b64encode(rng.randbytes(NONCE_BYTES)).decode()


def escape_name(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def unescape_name(escaped: str) -> str:
    """ValueError if it is not the text of a name (RFC 5802 §5.1)."""
    if not _NAME.fullmatch(escaped):
        raise ValueError("not an escaped name")
    return escaped.replace("=2C", ",").replace("=3D", "=")


def decode_base64(text: str) -> bytes | None:
    """None if it is not base64, or not the only text of these bytes: unused bits are 0."""
    try:
        data = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return data if b64encode(data).decode() == text else None


def salt_password(mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def client_key(mechanism: Mechanism, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Client Key", mechanism.hash_name)


def stored_key(mechanism: Mechanism, key: bytes) -> bytes:
    """From the client's key."""
    return hashlib.new(mechanism.hash_name, key).digest()


def server_key(mechanism: Mechanism, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Server Key", mechanism.hash_name)


def sign(mechanism: Mechanism, key: bytes, said: bytes) -> bytes:
    return hmac.digest(key, said, mechanism.hash_name)


def combine(left: bytes, right: bytes) -> bytes:
    """XOR of two digests: a proof of a key and a signature, and the key of a proof and a signature."""
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


@dataclass(slots=True, frozen=True)
class Credential:
    """What a broker stores about a user's password for one mechanism."""

    salt: bytes
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


def check_iterations(iterations: int) -> None:
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise ValueError(f"iterations={iterations}: must be {ITERATIONS_MIN} to {ITERATIONS_MAX}")


def credential_from_password(
    mechanism: Mechanism, password: str, salt: bytes, iterations: int = ITERATIONS_MIN
) -> Credential:
    """PBKDF2 takes milliseconds. ValueError if the iterations are out of bounds."""
    check_iterations(iterations)
    return credential_from_salted(
        mechanism, salt_password(mechanism, password, salt, iterations), salt, iterations
    )


def credential_from_salted(mechanism: Mechanism, salted: bytes, salt: bytes, iterations: int) -> Credential:
    """From a salted password, as AlterUserScramCredentials carries it."""
    check_iterations(iterations)
    if not salt or len(salted) != mechanism.digest_bytes:
        raise ValueError("the salt or the salted password has a wrong length")
    key = client_key(mechanism, salted)
    return Credential(salt, stored_key(mechanism, key), server_key(mechanism, salted), iterations)


def decoy_credential(
    mechanism: Mechanism, secret: bytes, name: str, like: Credential | None = None
) -> Credential:
    """What a user that does not exist would have: always the same, and no password fits.

    `like` is a credential of this cluster: its iterations, and the form of its salt, which the Java client
    writes in digits of base 36. All nodes must have the same secret: whoever gets different salts from
    two of them knows that the user does not exist.
    """
    asked = f"{mechanism.name}\0{name}".encode()
    digest = hmac.digest(secret, b"salt\0" + asked, "sha512")
    salt = digest[:SALT_BYTES]
    if like is not None:
        salt = digest[: len(like.salt)]
        if is_base_36(like.salt):
            salt = _base_36(digest, len(like.salt))
    return Credential(
        salt,
        sign(mechanism, secret, b"stored\0" + asked),
        sign(mechanism, secret, b"server\0" + asked),
        like.iterations if like is not None else ITERATIONS_MIN,
    )


def is_base_36(salt: bytes) -> bool:
    """Whether it is text as the Java client writes it."""
    return _BASE_36.fullmatch(salt) is not None


def _base_36(digest: bytes, length: int) -> bytes:
    number = int.from_bytes(digest, "big")
    digits = []
    for _ in range(min(length, 90)):  # of the 99 that 512 bits have
        number, digit = divmod(number, 36)
        digits.append(_BASE_36_DIGITS[digit])
    return "".join(digits).encode()


@dataclass(slots=True, frozen=True)
class ClientFirst:
    """The client's first message."""

    user: str  # the id of a token if `is_token`
    is_token: bool
    extensions: Mapping[str, str]


class ScramLogin:
    """One login, from the broker's side. Every method raises LoginRefused, and then the login is over.

    `server_error` is what RFC 5802 calls server-error, for a caller that sends it; it is the same whether the
    user or the password was wrong.
    """

    def __init__(self, mechanism: Mechanism, rng: Randomness, secret: bytes) -> None:
        self._mechanism = mechanism
        self._secret = secret
        self._server_nonce = new_nonce(rng)
        self._header = ""  # of GSS-API: whether there is a channel binding, and who to act for
        self._first_bare = ""
        self._nonce = ""  # the client's and ours
        self._server_first = ""
        self._first: ClientFirst | None = None
        self._credential: Credential | None = None
        self._is_known = False
        self._is_over = False
        self.server_error = b""

    def read_first(self, message: bytes) -> ClientFirst:
        """Who logs in. The caller looks for the credential, and goes on with `challenge`."""
        if self._first is not None or self._is_over:
            raise self._refused("other-error", "a second first message")
        text = self._text(message)
        # gs2-header: a flag, and perhaps an authzid, each with a comma behind it
        flag, comma, rest = text.partition(",")
        authzid, second_comma, bare = rest.partition(",")
        if not comma or not second_comma:
            raise self._refused("invalid-encoding", "the first message has no header")
        if flag.startswith("p="):
            raise self._refused("channel-binding-not-supported", "the client requires a channel binding")
        if flag not in ("n", "y"):  # y: it could bind, and knows that we cannot
            raise self._refused("invalid-encoding", "the first message has an unknown header")
        user, nonce, extensions = self._read_bare(bare)
        if authzid:
            self._check_authzid(authzid, user)
        self._header = f"{flag},{authzid},"
        self._first_bare = bare
        self._nonce = nonce + self._server_nonce
        is_token = extensions.get(TOKEN_EXTENSION, "").lower() == "true"
        self._first = ClientFirst(user, is_token, extensions)
        return self._first

    def challenge(self, credential: Credential | None, like: Credential | None = None) -> bytes:
        """The broker's first message. None: there is no such user, or it has no password for this mechanism.

        `like` is any credential of the mechanism; see `decoy_credential`.
        """
        first = self._first
        assert first is not None, "read_first comes before"
        assert self._credential is None, "one challenge per login"
        # made in any case, so that it takes the same time
        decoy = decoy_credential(self._mechanism, self._secret, first.user, like)
        self._is_known = credential is not None and credential.iterations >= ITERATIONS_MIN
        self._credential = shown = credential if credential is not None and self._is_known else decoy
        salt = b64encode(shown.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={shown.iterations}"
        return self._server_first.encode()

    def finish(self, message: bytes) -> bytes:
        """The broker's last message, its own proof; from then on the client is who it said it is."""
        credential = self._credential
        if credential is None or self._is_over:
            raise self._refused("other-error", "a last message that is not expected")
        without_proof, proof = self._read_final(self._text(message))
        mechanism = self._mechanism
        said = f"{self._first_bare},{self._server_first},{without_proof}".encode()
        signature = sign(mechanism, credential.stored_key, said)
        key = combine(proof, signature)
        is_proven = hmac.compare_digest(stored_key(mechanism, key), credential.stored_key)
        verifier = b"v=" + b64encode(sign(mechanism, credential.server_key, said))
        if not is_proven or not self._is_known:
            reason = "the password is wrong" if self._is_known else "no such user for this mechanism"
            raise self._refused("invalid-proof", reason)
        self._is_over = True
        return verifier

    def _read_bare(self, bare: str) -> tuple[str, str, dict[str, str]]:
        """Name, nonce and extensions."""
        fields = bare.split(",")
        if fields[0].startswith("m="):
            raise self._refused("extensions-not-supported", "the client requires an unknown extension")
        if len(fields) < 2 or not fields[0].startswith("n=") or not fields[1].startswith("r="):
            raise self._refused("invalid-encoding", "the first message has no name or no nonce")
        nonce = fields[1][2:]
        if not _PRINTABLE.fullmatch(nonce):
            raise self._refused("invalid-encoding", "the nonce is not printable text")
        try:
            user = unescape_name(fields[0][2:])
        except ValueError:
            raise self._refused("invalid-username-encoding", "the name is not encoded as RFC 5802") from None
        return user, nonce, self._read_extensions(fields[2:])

    def _read_extensions(self, fields: list[str]) -> dict[str, str]:
        extensions: dict[str, str] = {}
        for text in fields:
            matched = _EXTENSION.fullmatch(text)
            if matched is None or matched[1] in extensions:
                raise self._refused("invalid-encoding", "an extension cannot be read, or is there twice")
            extensions[matched[1]] = matched[2]
        return extensions

    def _check_authzid(self, authzid: str, user: str) -> None:
        """Nobody acts for somebody else (CVE-2017-12610)."""
        try:
            wanted = unescape_name(authzid.removeprefix("a=")) if authzid.startswith("a=") else None
        except ValueError:
            wanted = None
        if wanted is None:
            raise self._refused("invalid-encoding", "the authorization id cannot be read")
        if wanted != user:
            raise self._refused("other-error", "the client asks to act for another user")

    def _read_final(self, text: str) -> tuple[str, bytes]:
        """What was said before the proof, and the proof."""
        without_proof, found, proof_text = text.rpartition(",p=")
        fields = without_proof.split(",")
        proof = decode_base64(proof_text) if found else None
        if (
            proof is None
            or len(fields) < 2
            or not fields[0].startswith("c=")
            or not fields[1].startswith("r=")
        ):
            raise self._refused("invalid-encoding", "the last message cannot be read")
        self._read_extensions(fields[2:])
        if decode_base64(fields[0][2:]) != self._header.encode():
            raise self._refused("channel-bindings-dont-match", "the header is not that of the first message")
        # all of it: one that has only the client's half may come from an older login (CVE-2024-56128)
        if not hmac.compare_digest(fields[1][2:].encode(), self._nonce.encode()):
            raise self._refused("other-error", "the nonce is not that of this login")
        if len(proof) != self._mechanism.digest_bytes:
            raise self._refused("invalid-proof", "the proof has a wrong length")
        return without_proof, proof

    def _text(self, message: bytes) -> str:
        if len(message) > MESSAGE_BYTES_MAX:
            raise self._refused("no-resources", f"a message of {len(message)} bytes")
        try:
            return message.decode()
        except UnicodeDecodeError:
            raise self._refused("invalid-encoding", "a message that is not text") from None

    def _refused(self, server_error: str, reason: str) -> LoginRefused:
        self._is_over = True
        self._credential = None
        self.server_error = b"e=" + server_error.encode()
        return LoginRefused(reason)
