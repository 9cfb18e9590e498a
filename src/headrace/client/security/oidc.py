"""Tokens from an identity provider with an id and a secret of our own (OAuth 2.0 client credentials,
RFC 6749 §4.4), as `sasl.oauthbearer.token.endpoint.url` asks for.

The call blocks: shells make it away from their loop. What comes back is bounded and checked. A redirect is
refused: the secret is for the endpoint that was set, and for no other.
"""

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from base64 import b64encode
from dataclasses import dataclass, field
from http.client import HTTPException

from headrace.client.errors import TokenUnavailable
from headrace.client.http import RedirectRefused, open_url, read_until
from headrace.client.security.sasl import Token

TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 256 * 1024  # tokens have some kilobytes
REASON_CHARACTERS_MAX = 300
_TRY_AGAIN = (408, 425, 429)


@dataclass(slots=True, frozen=True)
class ClientCredentials:
    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None

    def __call__(self) -> Token:
        asked = {"grant_type": "client_credentials"}
        if self.scope:
            asked["scope"] = self.scope
        # as Kafka's own client does by default: neither part is url-encoded first
        credentials = b64encode(f"{self.client_id}:{self.client_secret}".encode()).decode()
        request = urllib.request.Request(
            self.url,
            urllib.parse.urlencode(asked).encode(),
            {"Authorization": f"Basic {credentials}", "Accept": "application/json"},
        )
        try:
            deadline = time.monotonic() + TIMEOUT_S
            with open_url(request, TIMEOUT_S) as answer:
                data = read_until(answer, ANSWER_BYTES_MAX, deadline)
        except urllib.error.HTTPError as error:
            with error:
                refused = TokenUnavailable(f"{self.url} answered {error.code}: {_reason(error)}")
            # as Kafka's client sees it: asked again, the same is answered to the same id and secret
            refused.is_retriable = error.code >= 500 or error.code in _TRY_AGAIN
            raise refused from None
        except RedirectRefused as error:
            refused = TokenUnavailable(
                f"{self.url} redirects to {error.target} ({error.code}); the client secret is not sent there"
            )
            refused.is_retriable = False
            refused.advice = (
                "Set sasl.oauthbearer.token.endpoint.url to the address that answers without a redirect."
            )
            raise refused from None
        except (OSError, HTTPException, ValueError) as error:
            raise TokenUnavailable(f"the token request to {self.url} failed: {error}") from error
        return self._token(data)

    def _token(self, data: bytes) -> Token:
        try:
            answer = json.loads(data)
            value, lifetime_s = answer["access_token"], answer.get("expires_in")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise TokenUnavailable(f"{self.url} answered without an access_token") from error
        is_timed = isinstance(lifetime_s, int | float) and lifetime_s > 0
        return Token(str(value), lifetime_s if is_timed else None)


def _reason(error: urllib.error.HTTPError) -> str:
    """In one line: as RFC 6749 §5.2 has it, or the status; pages for people are left out."""
    try:
        answer = json.loads(error.read(ANSWER_BYTES_MAX))
        parts = [answer["error"], *([answer["error_description"]] if "error_description" in answer else [])]
        said = ": ".join(" ".join(str(part).split()) for part in parts)
    except (OSError, HTTPException, ValueError, KeyError, TypeError, RecursionError):
        said = str(error.reason)
    return said[:REASON_CHARACTERS_MAX]
