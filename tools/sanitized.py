"""Runs a command with compiled modules that check themselves: address and undefined-behaviour sanitizers.

    python tools/sanitized.py python -m pytest tests/fuzz/fuzz_core.py

The modules are built under .cache/sanitized, from a copy of the sources, and are found there first. A finding
ends the process with a report. Needs gcc and its libasan and libubsan.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACE = ROOT / ".cache" / "sanitized"
FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer"
ENVIRONMENT = {
    "PYTHONMALLOC": "malloc",  # Python's own allocator would hide what happens inside its blocks
    "ASAN_OPTIONS": "detect_leaks=0",  # Python frees little when it ends
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


def build() -> None:
    """Copies the sources that changed, and compiles what they say."""
    for source in (ROOT / "src").rglob("*"):
        copy = PLACE / source.relative_to(ROOT)
        if source.suffix in (".py", ".pyx", ".pxd", ".pyi", ".typed") and (
            not copy.exists() or copy.stat().st_mtime < source.stat().st_mtime
        ):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, PLACE / name)
    flags = {"CFLAGS": FLAGS, "LDFLAGS": FLAGS, "CC": "gcc"}
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(command, cwd=PLACE, env=os.environ | flags, check=True)
    assert list(PLACE.rglob("*.so")), "no module was compiled: is there a C compiler?"


def library(name: str) -> str:
    done = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def main(command: list[str]) -> int:
    build()
    preloaded = " ".join(map(library, ("libasan.so", "libubsan.so")))
    paths = [str(PLACE / "src"), os.environ.get("PYTHONPATH", "")]
    environment = (
        os.environ | ENVIRONMENT | {"LD_PRELOAD": preloaded, "PYTHONPATH": ":".join(filter(None, paths))}
    )
    return subprocess.run(command, cwd=ROOT, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
