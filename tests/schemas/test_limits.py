"""What a stranger can ask of the registry is bounded: nobody else waits for it, and it ends."""

from __future__ import annotations

import json
import threading
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

from harness.registry_broker import RegistryBroker
from headrace.schemas import Registry, Schema

# Two lists of other values, each compared with each: minutes.
COUNT = 40_000


def ask(url: str, method: str = "GET", body: object = None) -> tuple[int, str]:
    data = None if body is None else json.dumps(body).encode()
    request = Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def enumeration(first: int) -> dict[str, str]:
    values = list(range(first, first + COUNT))
    return {"schemaType": "JSON", "schema": json.dumps({"enum": values}, separators=(",", ":"))}


def test_a_comparison_that_takes_too_long_is_ended_and_holds_nobody_up(
    registry_broker: RegistryBroker, registry: Registry
) -> None:
    subject = f"{registry_broker.url}/subjects/endless/versions"
    assert ask(subject, "POST", enumeration(0))[0] == 200
    told: list[tuple[int, str]] = []
    asking = threading.Thread(target=lambda: told.append(ask(subject, "POST", enumeration(COUNT))))
    asking.start()
    others = 0
    while asking.is_alive():
        assert ask(f"{registry_broker.url}/schemas/types")[0] == 200
        others += asking.is_alive()
        asking.join(0.05)
    ((status, said),) = told
    assert (status, json.loads(said)["error_code"]) == (500, 50002)
    assert "took more than" in said
    assert others, "others had to wait until it was over"
    assert registry.versions("endless") == [1]
    assert registry.register("after", Schema('"string"')) > 0


@pytest.mark.parametrize("number", ["²", "9" * 5000, "-1", "1_0", "٣", "0", "1e3", " 1"])
def test_what_is_no_id_is_not_found(registry_broker: RegistryBroker, number: str) -> None:
    for path in ("", "/schema", "/subjects", "/versions"):
        status, said = ask(f"{registry_broker.url}/schemas/ids/{quote(number)}{path}")
        assert (status, json.loads(said)["error_code"]) == (404, 40403), said
