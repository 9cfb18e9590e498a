"""Every option has a test with a broker, and is on a page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.spark import options, sink_options

HERE = Path(__file__)
DOCS = HERE.resolve().parents[2] / "docs"
TESTS = {
    path.name: path.read_text().replace("__", ".") for path in HERE.parent.glob("test_*.py") if path != HERE
}

# `path` is what load("…") and save("…") hand over.
OF_SOURCE = sorted(set(options.NAMES) - {"path"})
OF_SINK = sorted({*sink_options.NAMES, *sink_options.FORMAT_NAMES} - {"path"})


def is_named(name: str, text: str) -> bool:
    """As an option: name=…, "name": … or .option("name", …)."""
    whole = rf"(?<![\w.]){re.escape(name)}"
    return re.search(rf'{whole}=(?!=)|"{re.escape(name)}"[:,]', text) is not None


@pytest.mark.parametrize("name", OF_SOURCE)
def test_the_source_has_a_test_of(name):
    assert any(is_named(name, text) for text in TESTS.values())
    assert f"`{name}`" in (DOCS / "spark.md").read_text()


@pytest.mark.parametrize("name", OF_SINK)
def test_the_sink_has_a_test_of(name):
    assert any(is_named(name, text) for text in TESTS.values())
    assert f"`{name}`" in (DOCS / "spark-sink.md").read_text()
