"""docs/client/admin.md names every method in its table. Its blocks are run by test_pages.py."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.client.threads.admin import Admin

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "client" / "admin.md").read_text()


def test_every_method_is_on_the_page() -> None:
    table = PAGE.partition("## All methods")[2]
    methods = {name for name in dir(Admin) if not name.startswith("_")}
    assert set(re.findall(r"`(\w+)`", table)) == methods
