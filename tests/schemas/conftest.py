"""One broker with its registry for all stories of a module; each story has subjects and topics of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.headrace import Headrace
from harness.registry_broker import RegistryBroker
from headrace.schemas import Registry


@pytest.fixture(scope="module")
def registry_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryBroker]:
    with Headrace(tmp_path_factory.mktemp("registry"), {"headrace.metrics.port": "0"}) as broker:
        yield RegistryBroker(broker)


@pytest.fixture
def registry(registry_broker: RegistryBroker) -> Registry:
    return Registry(registry_broker.url)
