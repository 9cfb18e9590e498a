"""The Python that Spark's workers run: the one of this environment, with PySpark as pip installed it.

Spark puts a zipped PySpark in front of everything else. Python cannot keep bytecode for a zip, so that every
worker compiles PySpark anew: about a second of CPU for each, and a first query starts four kinds of them.
The package that pip installed is the same code, compiled once.
"""

import os
import sys
from pathlib import Path

COMMAND = "headrace-spark-python"
_ZIP = "pyspark.zip"


def command() -> str:
    """Where it is; the plain interpreter if it was not installed beside it, or if Spark is another one."""
    beside = Path(sys.executable).with_name(COMMAND)
    return str(beside) if beside.exists() and "SPARK_HOME" not in os.environ else sys.executable


def without_zip(search_path: str) -> str:
    """PYTHONPATH without the copy."""
    return os.pathsep.join(entry for entry in search_path.split(os.pathsep) if Path(entry).name != _ZIP)


def main() -> None:
    """What the command runs: Python with the same arguments."""
    if "PYTHONPATH" in os.environ:
        os.environ["PYTHONPATH"] = without_zip(os.environ["PYTHONPATH"])
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
