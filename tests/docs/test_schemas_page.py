"""docs/schemas.md says what happens: its blocks of Python run, one after the other, on a broker."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

from harness.headrace import Headrace
from headrace.schemas import registry, serializers

PAGE = Path(__file__).resolve().parents[2] / "docs" / "schemas.md"


def test_every_block_and_every_example_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 5
    with Headrace(tmp_path, {"headrace.metrics.port": "0"}) as broker:
        output = (tmp_path / "output.txt").read_text()
        names = {
            "servers": f"127.0.0.1:{broker.port}",
            "registry_url": re.findall(r"(http://\S+)/metrics", output)[-1],
        }
        for module in (registry, serializers):
            assert doctest.testmod(module, extraglobs=names).failed == 0
        scope: dict[str, object] = {"__name__": "page", **names}
        for number, block in enumerate(blocks):
            exec(compile(block, f"<schemas.md, block {number}>", "exec"), scope)


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)", PAGE.read_text()):
        assert (PAGE.parent / target).exists(), target
