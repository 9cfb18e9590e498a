"""One broker with its registry for all stories of a module; each story has subjects and topics of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from harness.headrace import Headrace
from headrace.schemas import Registry


class Site:
    """A broker and its registry, which may be started again."""

    def __init__(self, broker: Headrace) -> None:
        self.broker = broker

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.broker.port}"

    @property
    def url(self) -> str:
        output = (self.broker.directory / "output.txt").read_text()
        return re.findall(r"(http://\S+)/metrics", output)[-1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Headrace(tmp_path_factory.mktemp("registry"), {"headrace.metrics.port": "0"}) as broker:
        yield Site(broker)


@pytest.fixture
def registry(site: Site) -> Registry:
    return Registry(site.url)
