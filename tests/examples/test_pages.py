"""The README.md of each example: its commands run, from top to bottom, with smaller numbers.

Sections with Spark are left out here; tests/spark/test_page.py follows these pages as a whole.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.fenced import ROOT, STORIES, to_run
from harness.example_pages import follow_example
from harness.page_reader import Reader

HERE = "tests/examples/test_pages.py"
PAGES = [page for page, test in STORIES.items() if test == HERE]  # each is a README.md


@pytest.mark.parametrize("page", PAGES)
def test_an_example_does_what_its_page_says(page: str, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    with Reader(tmp_path) as reader:
        follow_example(reader, to_run(page, with_spark=False))
