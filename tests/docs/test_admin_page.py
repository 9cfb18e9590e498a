"""docs/client/admin.md says what happens: its blocks of Python are run, its table names every method."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from headrace.client.threads.admin import Admin
from headrace.testing import Broker

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "client" / "admin.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_every_block_runs(headrace_broker: Broker) -> None:
    names: dict[str, Any] = {"servers": headrace_broker.bootstrap_servers}
    for block in BLOCKS:
        exec(block, names)
    assert len(BLOCKS) > 5


def test_every_method_is_on_the_page() -> None:
    table = PAGE.partition("## All methods")[2]
    methods = {name for name in vars(Admin) if not name.startswith("_")}
    assert set(re.findall(r"`(\w+)`", table)) == methods
