"""A broker with its schema registry."""

from __future__ import annotations

import re

from harness.headrace import Headrace


class RegistryBroker:
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
