"""A run that notes which lines of the broker each test file executes.

`python -m mutants.trace notes.json NAME -m pytest …` runs the same as `python -m pytest …`, and so for the
simulator, whose lines are noted under NAME.
"""

from __future__ import annotations

import json
import runpy
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from coverage import Coverage

from mutants.choice import PACKAGES


class Contexts:
    """Says before each test to which file its lines belong. Before the first one: to everybody."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._coverage.switch_context(item.nodeid.partition("::")[0])
        return (yield)


def main(notes: Path, name: str, module: str, arguments: list[str]) -> int:
    root = Path.cwd()
    folders = [root / "src" / "headrace" / package for package in PACKAGES]
    coverage = Coverage(data_file=None, config_file=False, include=[f"{folder}/*" for folder in folders])
    coverage.start()
    if module == "pytest":
        code = int(pytest.main(arguments, plugins=[Contexts(coverage)]))
    else:
        coverage.switch_context(name)
        sys.argv[1:] = arguments
        try:
            runpy.run_module(module, run_name="__main__")
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
    coverage.stop()
    data = coverage.get_data()
    lines: dict[str, dict[int, list[str]]] = defaultdict(dict)
    for file in data.measured_files():
        lines[Path(file).relative_to(root).as_posix()] = data.contexts_by_lineno(file)
    notes.write_text(json.dumps(lines))
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[4], sys.argv[5:]))
