"""What a machine needs to run Spark: a JDK, a Python that Spark knows, memory; each told in one sentence."""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from headrace.base.extras import install_command

JAVA_MIN = 17
PYTHON_MIN = (3, 11)
MEMORY_MIN_BYTES = 2 << 30  # a driver of 1 GB, its workers, and a broker beside them

_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')


class NotReady(RuntimeError):
    """Spark cannot run here, and this is why."""


def check_machine() -> None:
    """Raises NotReady for the first thing that is missing."""
    for problem in (python_problem(), pyspark_problem(), java_problem()):
        if problem is not None:
            raise NotReady(problem)


def problems() -> list[str]:
    """Everything that is missing."""
    found = (python_problem(), pyspark_problem(), java_problem(), memory_problem(memory_bytes()))
    return [problem for problem in found if problem is not None]


def python_problem(version: tuple[int, ...] = tuple(sys.version_info[:2])) -> str | None:
    if version >= PYTHON_MIN:
        return None
    wanted = ".".join(map(str, PYTHON_MIN))
    return f"Python {'.'.join(map(str, version))} is too old: Headrace needs {wanted} or newer."


def pyspark_problem() -> str | None:
    """Of PySpark and of what its Arrow paths need."""
    for library in ("pyspark", "pyarrow", "pandas"):
        if find_spec(library) is None:
            command = install_command("spark")
            return f"Spark needs {library}, which is not installed: run `{command}` in a clone of Headrace."
    return None


def java_problem(home: str | None = None) -> str | None:
    """`home` in place of what JAVA_HOME says."""
    java = java_command(home if home is not None else os.environ.get("JAVA_HOME"))
    wanted = f"Spark needs a JDK {JAVA_MIN} or newer"
    if java is None:
        return f"{wanted}, and no `java` was found: install one, or set JAVA_HOME to where it is."
    try:
        asked = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except OSError as error:
        return f"{wanted}, and {java} does not run ({error.strerror}): set JAVA_HOME to where one is."
    version = java_version(asked.stderr + asked.stdout)
    if version is None or version < JAVA_MIN:
        found = "does not say its version" if version is None else f"is version {version}"
        return f"{wanted}, and {java} {found}: set JAVA_HOME to where a newer one is."
    return None


def java_command(home: str | None) -> str | None:
    if home:
        path = Path(home) / "bin" / "java"
        return str(path) if path.exists() else None
    return shutil.which("java")


def java_version(text: str) -> int | None:
    """From what `java -version` says; old ones call version 8 `1.8`."""
    found = _VERSION.search(text)
    if found is None:
        return None
    return int(found[2]) if found[1] == "1" and found[2] else int(found[1])


def memory_bytes() -> int | None:
    """That may be had now; None where nobody says."""
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return None
    found = re.search(r"MemAvailable:\s+(\d+) kB", text)
    return int(found[1]) << 10 if found else None


def memory_problem(available: int | None) -> str | None:
    if available is None or available >= MEMORY_MIN_BYTES:
        return None
    free, wanted = available / (1 << 30), MEMORY_MIN_BYTES >> 30
    return f"{free:.1f} GB of memory are free, and Spark beside a broker needs about {wanted} GB."
