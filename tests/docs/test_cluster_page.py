"""docs/cluster.md: its settings files are accepted as they are, and each sets what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.fenced import blocks_of
from headrace.node.settings import Settings

PAGE = "docs/cluster.md"
FILES = [
    dict(line.split("=", 1) for line in block.text.splitlines())
    for block in blocks_of(PAGE)
    if block.language == "" and "node.id=" in block.text
]
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("texts", FILES, ids=lambda texts: texts["process.roles"])
def test_a_file_of_the_page_is_accepted(texts: dict[str, str]) -> None:
    settings = Settings.parse(texts)
    assert not settings.unknown
    assert len(settings.quorum_voters) == 3
    assert ("controller" in settings.process_roles) == (texts["node.id"] == "1")


@pytest.mark.parametrize("texts", FILES, ids=lambda texts: texts["process.roles"])
def test_the_defaults_of_topics_are_where_they_have_an_effect(texts: dict[str, str]) -> None:
    """The active controller applies them; in the file of a broker they would only look as if they did."""
    is_controller = "controller" in texts["process.roles"]
    for key in ("default.replication.factor", "min.insync.replicas"):
        assert (key in texts) == is_controller


def test_each_role_has_a_file() -> None:
    assert [texts["process.roles"] for texts in FILES] == ["broker,controller", "controller", "broker"]


def test_defaults_that_the_page_names() -> None:
    settings = Settings.parse({"node.id": "1"})
    page = (ROOT / PAGE).read_text()
    for name, seconds in re.findall(r"`([a-z.]+\.ms)`[, (]+(\d+) s\)", page):
        assert getattr(settings, name.replace(".", "_")) == int(seconds) * 1000, name
    assert "(`broker.session.timeout.ms`, 9 s)" in page
