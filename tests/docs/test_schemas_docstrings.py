"""The examples in the docstrings of `headrace.schemas`. Its page is run by test_pages.py."""

from __future__ import annotations

import doctest
from types import ModuleType

import pytest

from headrace.schemas import registry, serializers
from headrace.testing import Broker


@pytest.mark.parametrize("module", [registry, serializers], ids=lambda module: module.__name__)
def test_every_example_runs(module: ModuleType, headrace_broker: Broker) -> None:
    names = {"servers": headrace_broker.bootstrap_servers, "registry_url": headrace_broker.registry_url}
    result = doctest.testmod(module, extraglobs=names)
    assert result.attempted > 0
    assert result.failed == 0
