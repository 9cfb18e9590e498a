"""Builds a wheel, installs it in a clean environment, and follows the README with it.

`make wheels` runs this. It also builds a second wheel without a C compiler, and checks that `headrace doctor`
and the first log line of a broker say that the record codec is interpreted.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
# what tests/docs/test_pages.py needs beside the wheel
TEST_TOOLS = ("pytest", "pytest-timeout", "psutil", "hypothesis")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="headrace-wheel-") as place:
        wheel = build(DIST, environment=dict(os.environ))
        size_kib = wheel.stat().st_size / 1024
        print(f"built {wheel.name}: {size_kib:.0f} KiB, {len(compiled_in(wheel))} compiled modules")
        assert compiled_in(wheel), "no module was compiled: is there a C compiler?"
        check(Path(place) / "compiled", wheel, codec="ok")

        without_compiler = {**os.environ, "CC": "/bin/false"}
        plain = build(Path(place) / "dist", environment=without_compiler)
        assert not compiled_in(plain), f"{compiled_in(plain)} were compiled without a compiler"
        check(Path(place) / "interpreted", plain, codec="warning")


def build(target: Path, *, environment: dict[str, str]) -> Path:
    """From a copy of the committed files, so that no module that was built earlier gets in."""
    with tempfile.TemporaryDirectory(prefix="headrace-source-") as source:
        files = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split("\0")
        for name in filter(None, files):
            if (ROOT / name).exists():
                (Path(source) / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, Path(source) / name)
        shutil.rmtree(target, ignore_errors=True)
        run(
            sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-build-isolation",
            "--no-deps", "-w", str(target), source, environment=environment,
        )  # fmt: skip
    (wheel,) = target.glob("headrace-*.whl")
    return wheel


def compiled_in(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return [name for name in archive.namelist() if name.endswith((".so", ".pyd"))]


def check(place: Path, wheel: Path, *, codec: str) -> None:
    run(sys.executable, "-m", "venv", str(place))
    python = str(place / "bin" / "python")
    run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", f"{wheel}[arrow]", *TEST_TOOLS)

    found = subprocess.run(
        [place / "bin" / "headrace", "doctor", "--json"], capture_output=True, text=True, cwd=place
    )
    (finding,) = [each for each in json.loads(found.stdout) if each["check"] == "record codec"]
    print(f"doctor: record codec: {finding['found']}")
    assert finding["state"] == codec, finding

    data = place / "data"
    with subprocess.Popen(
        [place / "bin" / "headrace", "up", "--data", data, "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=place,
    ) as broker:
        assert broker.stdout is not None
        ready = broker.stdout.readline()
        broker.terminate()
    assert ready.startswith("ready "), ready
    first_line = (data / "node-1" / "node.log").read_text().splitlines()[0]
    assert ("record_codec_interpreted" in first_line) == (codec == "warning"), first_line

    if codec == "ok":
        run(
            python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/docs/test_pages.py", "-k", "README"
        )


def run(*command: str, environment: dict[str, str] | None = None) -> None:
    subprocess.run(command, check=True, cwd=ROOT, env=environment)


if __name__ == "__main__":
    main()
