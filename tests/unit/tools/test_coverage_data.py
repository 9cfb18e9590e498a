"""Lines that slipcover has seen, stored for the reports of coverage.py."""

from __future__ import annotations

from coverage import CoverageData
from coverage_data import store


def test_lines_that_ran_are_stored_and_files_of_which_none_ran_are_known(tmp_path):
    data = CoverageData(no_disk=True)
    some, none = (str(tmp_path / name) for name in ("some.py", "none.py"))
    store({"files": {some: {"executed_lines": [3, 5]}, none: {"executed_lines": []}}}, data)
    assert sorted(data.lines(some) or []) == [3, 5]
    assert data.lines(none) == []
    assert data.measured_files() == {some, none}


def test_names_are_relative_to_the_current_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = CoverageData(no_disk=True)
    store({"files": {"src/part.py": {"executed_lines": [1]}}}, data)
    assert data.measured_files() == {str(tmp_path / "src" / "part.py")}
