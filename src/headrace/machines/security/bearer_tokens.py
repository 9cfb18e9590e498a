"""The check of a bearer token: from its text to the name of its owner and the moment when it expires.

check_bearer(token, keys, rules, now_ms) → Bearer, or LoginRefused with the reason for the log
"""

from headrace.machines.security.errors import LoginRefused
from headrace.machines.security.json_web_tokens import UNSIGNED, read_claims, read_token
from headrace.machines.security.oauthbearer import Bearer, ClaimRules, check_claims
from headrace.machines.security.signing_keys import SigningKeys


def check_bearer(token: str, keys: SigningKeys, rules: ClaimRules, now_ms: int) -> Bearer:
    """LoginRefused if the token is not valid now; UnknownKey if newer keys might be able to tell."""
    read = read_token(token)
    keys.verify(read)
    return check_claims(read_claims(read), rules, now_ms)


def check_unsigned_bearer(token: str, rules: ClaimRules, now_ms: int) -> Bearer:
    """The same for tokens that nobody has signed, which anybody can make."""
    read = read_token(token)
    if read.algorithm != UNSIGNED or read.signature:
        raise LoginRefused("the token is signed, and this listener takes unsigned ones only")
    return check_claims(read_claims(read), rules, now_ms)
