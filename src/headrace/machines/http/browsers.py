"""Requests that a page of another site makes a browser send (DNS rebinding, cross-site request forgery).

A browser reaches what only this machine or this network can reach. It says in headers where a request comes
from, and a page cannot forge them. Other programs are not affected.
"""

import re
from typing import Final, NamedTuple

from headrace.machines.http.messages import FORBIDDEN, UNSUPPORTED_TYPE, HttpHead, HttpResponse, refusal

# What Confluent's registry accepts. The last one is what some programs send that set no type of their own.
CONTENT_TYPES: Final = frozenset(
    (
        "application/vnd.schemaregistry.v1+json",
        "application/vnd.schemaregistry+json",
        "application/json",
        "application/octet-stream",
    )
)

_PLACE = re.compile(r"(\[[0-9a-f:.]+\]|[^\[\]:/@\s]+)(?::([0-9]{1,5}))?")
_LOOPBACK = re.compile(r"localhost|\[::1\]|127\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}")
_PORTS: Final = {"http": "80", "https": "443"}
_SHOWN_MAX = 100


class Place(NamedTuple):
    host: str
    port: str


class HostRules(NamedTuple):
    """By which names a listener may be addressed."""

    scheme: str  # http, https
    is_loopback: bool  # only this machine reaches the listener
    names: frozenset[str] = frozenset()  # headrace.http.hosts, in lower case, with or without a port

    def allows(self, place: Place) -> bool:
        if self.is_loopback and _LOOPBACK.fullmatch(place.host):
            return True
        if not self.names:
            return not self.is_loopback
        return self.lists(place)

    def lists(self, place: Place) -> bool:
        return place.host in self.names or f"{place.host}:{place.port}" in self.names


def check_origin(head: HttpHead, rules: HostRules) -> HttpResponse | None:
    """Why the request is refused, if it looks like one of another site's page."""
    host = head.header("host")
    place = None if host is None else _place(host, rules.scheme)
    # without a Host header it is HTTP/1.0, which no browser speaks
    if host is not None and (place is None or not rules.allows(place)):
        return refusal(
            FORBIDDEN,
            f"Host {_shown(host)} is not a name of this listener. Add it to headrace.http.hosts, or use "
            "another address.",
        )
    if head.is_read:
        return None
    origin = head.header("origin")
    if origin is not None and not _is_own(origin, place, rules):
        return refusal(FORBIDDEN, f"a page of {_shown(origin)} may not change anything here")
    if (head.header("sec-fetch-site") or "").strip().lower() == "cross-site":
        return refusal(FORBIDDEN, "a page of another site may not change anything here")
    return None


def check_content_type(head: HttpHead) -> HttpResponse | None:
    """Why a request with a body is refused. Forms of any page may send text/plain and the types of forms."""
    given = head.header("content-type")
    if given is None or head.is_read:
        return None
    kind = given.partition(";")[0].strip().lower()
    if kind in CONTENT_TYPES:
        return None
    return refusal(
        UNSUPPORTED_TYPE,
        f"HTTP 415 Unsupported Media Type: {_shown(given)}; use application/vnd.schemaregistry.v1+json",
    )


def _is_own(origin: str, place: Place | None, rules: HostRules) -> bool:
    scheme, found, rest = origin.strip().lower().partition("://")
    theirs = _place(rest, scheme) if found and scheme in _PORTS else None
    if theirs is None:
        return False  # "null" is the origin of pages that hide theirs
    return theirs == place or rules.lists(theirs)


def _place(text: str, scheme: str) -> Place | None:
    found = _PLACE.fullmatch(text.strip().lower())
    return None if found is None else Place(found[1], found[2] or _PORTS[scheme])


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "…"
