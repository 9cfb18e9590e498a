"""The command `headrace-spark-python`, which Spark's workers run: this Python without Spark's zipped PySpark.

Spark puts a zipped PySpark at the front of PYTHONPATH. Python keeps no bytecode for a zip, so every worker
compiles PySpark again: about a second of CPU each, and a first query starts four kinds of workers. The
package that pip installed is the same code, already compiled.
"""

import os
import sys
from pathlib import Path

COMMAND = "headrace-spark-python"
_ZIP = "pyspark.zip"


def command() -> str:
    """Return its path; the plain interpreter if it is not installed, or if SPARK_HOME names another Spark."""
    beside = Path(sys.executable).with_name(COMMAND)
    return str(beside) if beside.exists() and "SPARK_HOME" not in os.environ else sys.executable


def without_zip(search_path: str) -> str:
    """Return the PYTHONPATH without the zip."""
    return os.pathsep.join(entry for entry in search_path.split(os.pathsep) if Path(entry).name != _ZIP)


def main() -> None:
    """Run Python with the same arguments."""
    if "PYTHONPATH" in os.environ:
        os.environ["PYTHONPATH"] = without_zip(os.environ["PYTHONPATH"])
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
