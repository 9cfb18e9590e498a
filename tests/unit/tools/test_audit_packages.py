"""`make audit`: packages that were not checked are not called clean."""

from __future__ import annotations

import json
from typing import Any

import pytest
from audit_packages import CLEAN, NOT_CHECKED, VULNERABLE, judge

GOOD = {"name": "click", "version": "8.5.1", "vulns": []}
BAD = {"name": "h11", "version": "0.14", "vulns": [{"id": "PYSEC-1", "fix_versions": ["0.16"]}]}
SKIPPED = {"name": "uvloop", "skip_reason": "Dependency not found on PyPI and could not be audited"}


@pytest.mark.parametrize(
    ("packages", "code", "said"),
    [
        ([GOOD], CLEAN, "1 packages have no known vulnerabilities"),
        ([GOOD, BAD], VULNERABLE, "h11 0.14: PYSEC-1, fixed in 0.16"),
        ([GOOD, SKIPPED], NOT_CHECKED, "1 of 2 packages were not checked"),
        ([BAD, SKIPPED], VULNERABLE, "PYSEC-1"),
        ([], NOT_CHECKED, "0 of 0 packages were not checked"),
    ],
)
def test_verdicts(packages: list[dict[str, Any]], code: int, said: str) -> None:
    found, lines = judge(json.dumps({"dependencies": packages}), "")
    assert found == code
    assert said in "\n".join(lines)


def test_a_tool_that_fails_has_checked_nothing() -> None:
    code, lines = judge("", "Traceback\nrequests.exceptions.ConnectionError: no route to host\n")
    assert code == NOT_CHECKED
    assert "no route to host" in lines[-1]
