"""HTTP requests to a schema registry: several addresses, retries, a timeout, and checks of the answer.

A request has `timeout_s` in total, for all addresses and at most `ROUNDS` rounds. An error of the registry
itself is a RegistryTrouble, which names the address and the subject of the request. SchemaUnknown is raised
only if the answer has the registry's own error code; a plain 404 page is not an answer of a registry.

A login in an address is sent only to that address; a login that was passed as an argument is sent to all
addresses. None is sent to another origin after a redirect.
"""

import base64
import json
import time
from collections.abc import Callable
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import Request

from headrace.client.http import RedirectRefused, open_url, read_until
from headrace.schemas.errors import (
    Incompatible,
    NoRegistry,
    RegistryRefused,
    RegistryUnreachable,
    SchemaError,
    SchemaUnknown,
)

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
ANSWER_BYTES_MAX = 64 * 1024 * 1024
# One that restarts is back within these; longer patience is for whoever asks, who knows what it is about.
ROUNDS = 3
PAUSES_S = (0.1, 0.4)
_AGAIN = (408, 429)  # and all from 500 on
_UNKNOWN = (40401, 40402, 40403)
_SHOWN_MAX = 100


class RegistryHttp:
    """The addresses of a registry, and requests to them."""

    def __init__(
        self,
        url: str,
        user: str | None,
        password: str | None,
        timeout_s: float,
        authorities: str | None = None,
    ) -> None:
        self.urls: list[str] = []
        self._logins: dict[str, str] = {}  # by address, for those that have one
        for one in url.split(","):
            parts = urlsplit(one.strip())
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise SchemaError(f"{one.strip()!r} is not the address of a registry; write http://host:port")
            place = parts.netloc.rpartition("@")[2]
            address = f"{parts.scheme}://{place}{parts.path.rstrip('/')}"
            self.urls.append(address)
            if parts.username is not None:
                self._logins[address] = _basic(unquote(parts.username), unquote(parts.password or ""))
            elif user is not None:
                self._logins[address] = _basic(user, password or "")
        self._timeout_s = timeout_s
        self._authorities = authorities  # a file or directory of certificates to trust; None: the system's

    def ask(
        self, method: str, path: str, body: Any = None, *, what: str, read: Callable[[Any], Any] | None = None
    ) -> Any:
        """The JSON of the first address that answers, converted by `read`; errors contain `what`."""
        deadline = time.monotonic() + self._timeout_s
        failures: dict[str, str] = {}  # the last of each address
        for number in range(ROUNDS):
            if number:
                time.sleep(max(0.0, min(PAUSES_S[number - 1], deadline - time.monotonic())))
            for place, url in enumerate(self.urls):
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    break
                # one that is silent leaves time for those behind it
                timeout_s = left_s / (len(self.urls) - place)
                try:
                    return self._answer(url, method, path, body, timeout_s, what, read)
                except _NoAnswer as error:
                    failures[url] = str(error)
        said = "; ".join(f"{url} {failure}" for url, failure in failures.items())
        raise RegistryUnreachable(f"no registry answered the request about {what}: {said}")

    def _answer(
        self,
        url: str,
        method: str,
        path: str,
        body: Any,
        timeout_s: float,
        what: str,
        read: Callable[[Any], Any] | None,
    ) -> Any:
        request = Request(url + path, method=method)
        request.add_header("Accept", CONTENT_TYPE)
        if url in self._logins:
            request.add_header("Authorization", self._logins[url])
        if body is not None:
            request.add_header("Content-Type", CONTENT_TYPE)
            request.data = json.dumps(body).encode()
        try:
            with open_url(request, timeout_s, self._authorities) as answer:
                data = read_until(answer, ANSWER_BYTES_MAX, time.monotonic() + timeout_s)
        except HTTPError as error:
            with error:
                if error.code >= 500 or error.code in _AGAIN:
                    raise _NoAnswer(f"answers {error.code}") from None
                raise _refusal(error, url, what) from None
        except RedirectRefused as error:
            refused = RegistryRefused(
                error.code,
                f"{url} redirects the request about {what} to {error.target}, which is not followed",
            )
            refused.advice = "Set the registry's address to the one that answers without a redirect."
            raise refused from None
        except TimeoutError:
            raise _NoAnswer(f"did not answer within {timeout_s:.1f} s") from None
        except (URLError, HTTPException, OSError) as error:
            raise _NoAnswer(f"cannot be reached: {_cause_text(error)}") from None
        try:
            reply = json.loads(data)
            return reply if read is None else read(reply)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            shown = repr(data[:_SHOWN_MAX]) + ("…" if len(data) > _SHOWN_MAX else "")
            raise NoRegistry(
                f"{url} is not a schema registry; it answered the request about {what} with {shown}"
            ) from None


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def _cause_text(error: Exception) -> str:
    """ "connection refused", not ConnectionRefusedError(111, 'Connection refused')."""
    cause = getattr(error, "reason", None) or error
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror.lower() if cause.strerror.isascii() else cause.strerror
    return str(cause) or repr(cause)


class _NoAnswer(Exception):
    """One address did not answer, in this round."""


def _refusal(error: HTTPError, url: str, what: str) -> SchemaError:
    try:
        reply = json.loads(error.read(ANSWER_BYTES_MAX))
        code, message = int(reply["error_code"]), str(reply["message"])
    except (ValueError, KeyError, TypeError, RecursionError, OSError, HTTPException):
        # a proxy's page, or the way to something else: its status says enough
        return RegistryRefused(error.code, f"{url} refused the request about {what}: {error.reason}")
    if code in _UNKNOWN:
        return SchemaUnknown(f"the registry at {url} does not know {what}: {message}")
    return (Incompatible if code == 409 else RegistryRefused)(
        code, f"{url} refused the request about {what}: {message}"
    )
