"""The registry: what exists, in which versions, and that asking for little loads little."""

from __future__ import annotations

import subprocess
import sys

import pytest

from headrace.protocol.api import APIS, Api, ApiKey, Listener, message_types, request_codec, response_codec
from headrace.protocol.errors import UnsupportedVersion


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_table_agrees_with_the_declarations(api: Api) -> None:
    for kind in message_types(api):
        assert api.key == kind.KEY
        assert kind.VERSIONS.first == api.first
        # version 6 of InitProducerId is declared, but Kafka marks it as unstable and does not serve it
        assert kind.VERSIONS.last == (6 if api.key == ApiKey.INIT_PRODUCER_ID else api.last)
        for version in range(api.first, api.last + 1):
            is_flexible = api.flexible_from is not None and version >= api.flexible_from
            assert (version in kind.FLEXIBLE) == is_flexible


def test_codecs_are_made_once() -> None:
    assert request_codec(0, 9) is request_codec(0, 9)
    assert response_codec(0, 9) is response_codec(0, 9)
    assert request_codec(0, 9).message is message_types(APIS[0])[0]


@pytest.mark.parametrize(("key", "version"), [(0, 2), (0, 14), (0, -1), (22, 6), (4, 0), (-1, 0), (30000, 0)])
def test_what_is_not_served_is_unsupported(key: int, version: int) -> None:
    for find in (request_codec, response_codec):
        with pytest.raises(UnsupportedVersion) as refused:
            find(key, version)
        assert (refused.value.api_key, refused.value.version) == (key, version)


def test_listeners() -> None:
    assert Listener.CONTROLLER in APIS[ApiKey.FETCH].listeners
    assert Listener.CONTROLLER not in APIS[ApiKey.PRODUCE].listeners
    assert Listener.BROKER not in APIS[ApiKey.VOTE].listeners


def test_messages_are_loaded_one_by_one() -> None:
    program = """
import sys
from headrace.protocol import framing
from headrace.protocol.api import request_codec
def loaded(): return sorted(name for name in sys.modules if name.startswith("headrace.protocol.messages."))
assert loaded() == [], loaded()
request_codec(18, 3)
assert loaded() == ["headrace.protocol.messages.api_versions"], loaded()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
