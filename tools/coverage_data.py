"""Coverage data of coverage.py from the lines that slipcover has seen: `coverage_data.py LINES.json`.

`make test` measures with slipcover, which is faster, and reports with coverage.py, which has the settings and
the floor. docs/decisions/0012-slipcover.md has the reasons.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from coverage import Coverage, CoverageData


def store(lines: dict[str, Any], data: CoverageData) -> None:
    """Files of which no line has run are stored, too: they count in the percentage."""
    run = {str(Path(name).resolve()): file["executed_lines"] for name, file in lines["files"].items()}
    data.add_lines({name: numbers for name, numbers in run.items() if numbers})
    data.touch_files([name for name, numbers in run.items() if not numbers])


def main(path: Path) -> None:
    coverage = Coverage()  # its settings are in pyproject.toml
    coverage.erase()
    data = coverage.get_data()
    store(json.loads(path.read_text()), data)
    data.write()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
