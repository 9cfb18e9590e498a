"""A run that notes which lines of the broker each test executes, and how long each test takes.

`python -m mutants.trace notes.json NAME -m pytest …` runs the same as `python -m pytest …`, and so for the
simulator, whose lines are noted under NAME.
"""

from __future__ import annotations

import json
import runpy
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from coverage import Coverage, CoverageData

from mutants.choice import PACKAGES


class Contexts:
    """Says before each test to whom its lines belong. Before the first one: to everybody."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage
        self._test = ""
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._test = item.nodeid
        self._coverage.switch_context(self._test)
        began = time.process_time()
        answer = yield
        self.seconds[self._test] = time.process_time() - began
        return answer

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Iterator[None]:
        """What several tests share belongs to all tests of the file, not to the first that asks for it."""
        if fixturedef.scope == "function":
            return (yield)
        self._coverage.switch_context(self._test.partition("::")[0])
        answer = yield
        self._coverage.switch_context(self._test)
        return answer


def main(notes: Path, name: str, module: str, arguments: list[str]) -> int:
    root = Path.cwd()
    folders = [root / "src" / "headrace" / package for package in PACKAGES]
    coverage = Coverage(data_file=None, config_file=False, include=[f"{folder}/*" for folder in folders])
    contexts = Contexts(coverage)
    coverage.start()
    if module == "pytest":
        code = int(pytest.main(arguments, plugins=[contexts]))
    else:
        coverage.switch_context(name)
        sys.argv[1:] = arguments
        try:
            runpy.run_module(module, run_name="__main__")
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
    coverage.stop()
    notes.write_text(json.dumps(noted(coverage.get_data(), contexts.seconds, root)))
    return code


def noted(data: CoverageData, seconds: dict[str, float], root: Path) -> dict[str, object]:
    """Each line with its tests as bits of a number, for there are some thousand of either."""
    bits: dict[str, int] = {}
    lines: dict[str, dict[int, str]] = {}
    for file in data.measured_files():
        of_file = lines[Path(file).relative_to(root).as_posix()] = {}
        for line, reaching in data.contexts_by_lineno(file).items():
            mask = 0
            for test in reaching:
                mask |= 1 << bits.setdefault(test, len(bits))
            of_file[line] = f"{mask:x}"
    return {"tests": list(bits), "seconds": seconds, "lines": lines}


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[4], sys.argv[5:]))
