"""docs/security.md: its settings files are taken as they stand there, and it names what there is."""

from __future__ import annotations

import re
from pathlib import Path

from docs.fenced import blocks_of
from headrace.machines.configs.definition import broker_config_keys
from headrace.node.settings import Settings

NAME = "docs/security.md"
PAGE = (Path(__file__).resolve().parents[2] / NAME).read_text()
LEAST = {"node.id": "1", "log.dirs": "data"}


def properties(text: str) -> dict[str, str]:
    joined = text.replace("\\\n", "")
    return dict(line.partition("=")[::2] for line in joined.splitlines() if line)


def test_every_settings_file_is_taken() -> None:
    files = [block.text for block in blocks_of(NAME) if block.text.startswith("listeners=")]
    assert len(files) >= 2
    for text in files:
        settings = Settings.parse(LEAST | properties(text))
        assert all(one.security_protocol != "PLAINTEXT" for one in settings.listeners)
        assert not settings.unknown


def test_every_setting_it_names_exists() -> None:
    of_clients = {"ssl.ca.location", "security.protocol"}
    quoted = re.findall(r"`((?:ssl|sasl|security|connections?)\.[a-z.]+)[`=]", PAGE)
    assert len(quoted) > 8
    assert set(quoted) - set(broker_config_keys()) - of_clients == set()
