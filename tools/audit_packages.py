"""Asks whether the packages that Headrace needs have known vulnerabilities (`make audit`), with pip-audit.

It needs the network. A package about which the database of vulnerabilities says nothing was not checked, and
that is not the same as nothing found: pip-audit skips it and is content, and we say so and end with exit code
2. If all were checked, the bill of materials (CycloneDX, JSON) is written.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BILL = ROOT / ".cache" / "bill-of-materials.json"
REQUIREMENTS = ("requirements.txt", "requirements-spark.txt")
CLEAN, VULNERABLE, NOT_CHECKED = 0, 1, 2


def pip_audit(*more: str) -> subprocess.CompletedProcess[str]:
    """With the versions that we pin, and without installing anything."""
    command = [sys.executable, "-m", "pip_audit", "--progress-spinner", "off", "--timeout", "15"]
    command += ["--no-deps", "--disable-pip"]
    for name in REQUIREMENTS:
        command += ["-r", name]
    return subprocess.run([*command, *more], cwd=ROOT, capture_output=True, text=True, timeout=900)


def judge(output: str, errors: str) -> tuple[int, list[str]]:
    """The exit code, and what to say, by pip-audit's report in JSON."""
    try:
        packages: list[dict[str, Any]] = json.loads(output)["dependencies"]
    except (ValueError, KeyError, TypeError):
        reason = errors.strip().splitlines()[-1:] or ["it said nothing"]
        return NOT_CHECKED, ["Nothing was checked: pip-audit failed.", reason[0][:300]]
    found = [package for package in packages if package.get("vulns")]
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    lines = [
        f"{package['name']} {package['version']}: {problem['id']}, "
        f"fixed in {', '.join(problem['fix_versions']) or 'no version yet'}"
        for package in found
        for problem in package["vulns"]
    ]
    if skipped or not packages:
        lines.append(
            f"{len(skipped)} of {len(packages)} packages were not checked, because the database of "
            f"vulnerabilities cannot be reached or does not know them: {', '.join(skipped)}"
        )
    if found:
        return VULNERABLE, lines
    if skipped or not packages:
        return NOT_CHECKED, lines
    return CLEAN, [f"{len(packages)} packages have no known vulnerabilities"]


def main() -> int:
    report = pip_audit("--format", "json")
    code, lines = judge(report.stdout, report.stderr)
    print("\n".join(lines), file=sys.stderr if code else sys.stdout)
    if code != NOT_CHECKED:
        BILL.parent.mkdir(exist_ok=True)
        pip_audit("--format", "cyclonedx-json", "--output", str(BILL))
        print(f"bill of materials: {BILL.relative_to(ROOT)}")
    return code


if __name__ == "__main__":
    sys.exit(main())
