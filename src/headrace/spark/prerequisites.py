"""Prerequisites of Spark on this computer: Python, PySpark, a JDK and free memory.

Each check returns one sentence that says what is missing and what to do, or None.
"""

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


class MissingPrerequisite(RuntimeError):
    """Spark cannot run on this computer; the message says what is missing and what to do."""


def check_prerequisites() -> None:
    """Raise MissingPrerequisite for the first thing that is missing."""
    for problem in (python_problem(), pyspark_problem(), java_problem()):
        if problem is not None:
            raise MissingPrerequisite(problem)


def problems() -> list[str]:
    """Return a sentence for everything that is missing."""
    found = (python_problem(), pyspark_problem(), java_problem(), memory_problem(memory_bytes()))
    return [problem for problem in found if problem is not None]


def python_problem(version: tuple[int, ...] = tuple(sys.version_info[:2])) -> str | None:
    if version >= PYTHON_MIN:
        return None
    wanted = ".".join(map(str, PYTHON_MIN))
    return (
        f"Python {'.'.join(map(str, version))} is too old: Headrace needs Python {wanted} or newer. "
        "Install it and create a new virtual environment."
    )


def pyspark_problem() -> str | None:
    """Check PySpark and the libraries that its Arrow code needs."""
    for library in ("pyspark", "pyarrow", "pandas"):
        if find_spec(library) is None:
            command = install_command("spark")
            return f"Spark needs {library}, which is not installed: run `{command}` in a clone of Headrace."
    return None


def java_problem(home: str | None = None) -> str | None:
    """Check the JDK in `home`, by default in JAVA_HOME or on the PATH."""
    home = home if home is not None else os.environ.get("JAVA_HOME")
    java = java_command(home)
    wanted = f"Spark needs a JDK {JAVA_MIN} or newer"
    if java is None:
        where = f"in JAVA_HOME={home}" if home else "on the PATH"
        return f"{wanted}, but there is no `java` {where}: install one, or set JAVA_HOME to its directory."
    try:
        asked = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except OSError as error:
        return f"{wanted}, but {java} cannot be run ({error.strerror}): set JAVA_HOME to a JDK's directory."
    version = java_version(asked.stderr + asked.stdout)
    if version is None or version < JAVA_MIN:
        found = "prints no version" if version is None else f"is version {version}"
        return f"{wanted}, but {java} {found}: set JAVA_HOME to the directory of a newer JDK."
    return None


def java_command(home: str | None) -> str | None:
    if home:
        path = Path(home) / "bin" / "java"
        return str(path) if path.exists() else None
    return shutil.which("java")


def java_version(text: str) -> int | None:
    """Read the major version from the output of `java -version`; Java 8 calls itself `1.8`."""
    found = _VERSION.search(text)
    if found is None:
        return None
    return int(found[2]) if found[1] == "1" and found[2] else int(found[1])


def memory_bytes() -> int | None:
    """Return the available memory; None where the system does not say."""
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
    return (
        f"{free:.1f} GB of memory are available; Spark and a broker need about {wanted} GB: "
        "end other programs first."
    )
