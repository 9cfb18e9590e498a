"""Requests that a page of another site makes a browser send are refused; those of programs are not."""

from __future__ import annotations

import pytest

from headrace.machines.http.browsers import CONTENT_TYPES, HostRules, check_content_type, check_origin
from headrace.machines.http.messages import HttpHead

LOOPBACK = HostRules("http", is_loopback=True)
EVERYWHERE = HostRules("http", is_loopback=False)
NAMED = frozenset(("registry.example.com", "other.example.com:8443"))


def status(rules: HostRules, method: str = "GET", **headers: str) -> int | None:
    given = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    refused = check_origin(HttpHead(method, "/subjects", given), rules)
    return None if refused is None else refused.status


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:9644", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:80", "127.1.2.3", "[::1]:9644"],
)
def test_names_of_this_machine(host: str) -> None:
    assert status(LOOPBACK, host=host) is None
    assert status(LOOPBACK, "POST", host=host) is None


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example:9644", ""),
        *("10.0.0.1", "localhost:9644:1", "a@localhost", "[::2]", "localhost/x", "notlocalhost"),
    ],
)
def test_a_name_of_another_site_that_leads_to_this_machine(host: str) -> None:
    """DNS rebinding: the page's own name is made to mean 127.0.0.1."""
    assert status(LOOPBACK, host=host) == 403
    assert status(LOOPBACK, "POST", host=host) == 403


def test_other_listeners_have_any_name_unless_some_are_listed() -> None:
    assert status(EVERYWHERE, host="registry.example.com") is None
    rules = EVERYWHERE._replace(names=NAMED)
    assert status(rules, host="registry.example.com:9644") is None
    assert status(rules, host="Registry.Example.com") is None
    assert status(rules, host="other.example.com:8443") is None
    assert status(rules, host="other.example.com") == 403
    assert status(rules, host="localhost") == 403
    assert status(LOOPBACK._replace(names=NAMED), host="registry.example.com") is None
    assert status(LOOPBACK._replace(names=NAMED), host="localhost") is None


def test_other_programs() -> None:
    assert status(LOOPBACK) is None  # HTTP/1.0
    assert status(LOOPBACK, "POST", host="localhost:9644") is None
    assert status(LOOPBACK, "DELETE", host="localhost:9644") is None


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize(
    "origin",
    [
        *("http://evil.example", "null", "http://localhost:3000", "http://localhost", "file://", ""),
        *("https://localhost:9644.evil.example", "http://a@localhost:9644", "localhost:9644"),
    ],
)
def test_writes_of_a_foreign_page(method: str, origin: str) -> None:
    assert status(LOOPBACK, method, host="localhost:9644", origin=origin) == 403
    assert status(EVERYWHERE, method, host="here.example:9644", origin=origin) == 403


def test_writes_of_our_own_pages() -> None:
    assert status(LOOPBACK, "POST", host="localhost:9644", origin="http://localhost:9644") is None
    assert status(EVERYWHERE, "POST", host="a.example", origin="http://A.example:80") is None
    rules = LOOPBACK._replace(names=NAMED)
    assert status(rules, "POST", host="localhost:9644", origin="https://registry.example.com") is None


def test_a_foreign_page_may_ask_and_gets_no_answer_to_read() -> None:
    """Without CORS headers the browser shows the page nothing."""
    assert status(LOOPBACK, host="localhost", origin="http://evil.example") is None
    assert status(LOOPBACK, host="localhost", sec_fetch_site="cross-site") is None


def test_what_browsers_say_of_the_sender() -> None:
    assert status(LOOPBACK, "POST", host="localhost", sec_fetch_site="cross-site") == 403
    assert status(LOOPBACK, "DELETE", host="localhost", sec_fetch_site="Cross-Site") == 403
    for same in ("same-origin", "none"):
        assert status(LOOPBACK, "POST", host="localhost", sec_fetch_site=same) is None


def typed(kind: str | None, method: str = "POST") -> int | None:
    headers = () if kind is None else (("content-type", kind),)
    refused = check_content_type(HttpHead(method, "/subjects/a/versions", headers))
    return None if refused is None else refused.status


@pytest.mark.parametrize(
    "kind", [None, *sorted(CONTENT_TYPES), "application/json; charset=utf-8", "Application/JSON"]
)
def test_kinds_that_registry_clients_send(kind: str | None) -> None:
    assert typed(kind) is None


@pytest.mark.parametrize(
    "kind",
    [
        *("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""),
        *("text/plain; application/json", "text/json", "application/jsonp", "text/plain;charset=UTF-8"),
    ],
)
def test_kinds_that_forms_send(kind: str) -> None:
    assert typed(kind) == 415
    assert typed(kind, "GET") is None
