"""The client's pages say what happens: their blocks of Python run, one after the other, on a broker."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from headrace.testing import Broker

PAGES = Path(__file__).resolve().parents[2] / "docs" / "client"


@pytest.mark.parametrize("page", ["README.md", "migrating.md"])
def test_every_block_runs(page: str, headrace_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", (PAGES / page).read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) > 5
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)  # dataclasses look for their own
    module.servers = headrace_broker.bootstrap_servers  # type: ignore[attr-defined]
    for number, block in enumerate(blocks):
        exec(compile(block, f"<{page}, block {number}>", "exec"), vars(module))


def test_links_lead_somewhere() -> None:
    for page in PAGES.glob("*.md"):
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
