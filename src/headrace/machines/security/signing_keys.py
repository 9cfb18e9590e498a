"""Public keys that sign tokens: a JSON Web Key Set (RFC 7517), and the check of a signature with one of them.

The list of algorithms is ours, and each key is bound to those of its own type and curve: a token chooses
among them, and can make no key something else. So `none` is not on the list, and neither is HMAC, which would
take a public key for a secret.

This is the only place that uses PyJWT and the cryptography package, of the extra `oauth`; they are imported
when the first key is read.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Final

from headrace.machines.security.errors import LoginRefused
from headrace.machines.security.json_web_tokens import SignedToken, decode_base64url, json_object

# Of an identity provider: those of now, of before, and of what comes next, for some algorithms each.
KEYS_MAX = 100

RSA_BITS_MIN = 2048  # RFC 7518 §3.3
RSA_BITS_MAX = 8192  # a check takes a third of a millisecond with that, and holds up everybody
RSA_EXPONENT_MAX = 2**32  # one as long as the modulus would make a check as slow as a signature

RSA_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
ALGORITHMS_OF_CURVES: Final = {
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
    ("OKP", "Ed448"): ("EdDSA",),
}
ALGORITHMS: Final = frozenset(RSA_ALGORITHMS).union(*ALGORITHMS_OF_CURVES.values())

# All that makes a public key. Anything else in it, such as the private part, is left out.
_MEMBERS: Final = {"RSA": ("kty", "n", "e"), "EC": ("kty", "crv", "x", "y"), "OKP": ("kty", "crv", "x")}


class UnknownKey(LoginRefused):
    """No key that fits the token is known: newer ones may have it."""


@dataclass(slots=True, frozen=True)
class SigningKey:
    key_id: str | None
    algorithms: tuple[str, ...]  # it can be used with
    public: Any = field(repr=False)


def is_installed() -> bool:
    return all(find_spec(name) is not None for name in ("jwt", "cryptography"))


@lru_cache(maxsize=1)
def _algorithms() -> Mapping[str, Any]:
    from jwt.algorithms import get_default_algorithms

    return {name: one for name, one in get_default_algorithms().items() if name in ALGORITHMS}


class SigningKeys:
    """Those of one key set."""

    __slots__ = ("_keys",)

    def __init__(self, keys: Iterable[SigningKey] = ()) -> None:
        self._keys = tuple(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def verify(self, token: SignedToken) -> None:
        """LoginRefused if the token was not signed with one of these keys. It takes some dozens of
        microseconds.
        """
        algorithm = token.algorithm
        if algorithm not in ALGORITHMS:
            raise LoginRefused("the token's algorithm is not allowed")
        fitting = [key for key in self._keys if algorithm in key.algorithms]
        if token.key_id is not None:
            fitting = [key for key in fitting if key.key_id == token.key_id]
        elif len(fitting) > 1:
            raise LoginRefused("the token does not say which key has signed it, and several could have")
        if not fitting:
            raise UnknownKey("no key of the key set has the token's kid and fits its algorithm")
        checks = _algorithms()[algorithm]
        if not any(checks.verify(token.signed, key.public, token.signature) for key in fitting):
            raise LoginRefused("the token's signature is wrong")


def read_key_set(document: bytes) -> SigningKeys:
    """The keys of a document that can check signatures; others are left out. ValueError if it is not a key
    set, or there are none, or too many.
    """
    entries = json_object(document).get("keys")
    if not isinstance(entries, list):
        raise ValueError("it has no list of keys")
    if len(entries) > KEYS_MAX:
        raise ValueError(f"it has {len(entries)} keys, more than {KEYS_MAX}")
    read = [_key(entry) for entry in entries if isinstance(entry, dict)]
    keys = [key for key in read if key is not None]
    if not keys:
        raise ValueError(f"none of its {len(entries)} keys can check the signature of a token")
    return SigningKeys(keys)


def _key(entry: dict[str, Any]) -> SigningKey | None:
    """None if it is for something else, or of a type that is not allowed."""
    key_id, operations = entry.get("kid"), entry.get("key_ops")
    if key_id is not None and not isinstance(key_id, str):
        return None
    if entry.get("use") not in (None, "sig"):
        return None
    if operations is not None and not (isinstance(operations, list) and "verify" in operations):
        return None
    algorithms = _fitting_algorithms(entry)
    if "alg" in entry:
        algorithms = tuple(one for one in algorithms if one == entry["alg"])
    if not algorithms:
        return None
    members = {name: entry.get(name) for name in _MEMBERS[entry["kty"]]}
    try:
        public = _algorithms()[algorithms[0]].from_jwk(members)
    except Exception:  # PyJWT's errors, and those of OpenSSL: of many classes
        return None
    return SigningKey(key_id, algorithms, public)


def _fitting_algorithms(entry: dict[str, Any]) -> tuple[str, ...]:
    kind, curve = entry.get("kty"), entry.get("crv")
    if kind == "RSA":
        modulus, exponent = _number(entry.get("n")), _number(entry.get("e"))
        is_good = RSA_BITS_MIN <= modulus.bit_length() <= RSA_BITS_MAX and 2 < exponent < RSA_EXPONENT_MAX
        return RSA_ALGORITHMS if is_good else ()
    if not isinstance(kind, str) or not isinstance(curve, str):
        return ()
    return ALGORITHMS_OF_CURVES.get((kind, curve), ())


def _number(text: object) -> int:
    data = decode_base64url(text) if isinstance(text, str) else None
    return int.from_bytes(data or b"", "big")
