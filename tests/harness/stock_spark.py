"""Spark 4.0.0 with its own Kafka connector, in a virtual environment of its own: what users have today.

Spark 4.3, which our own source runs on, has no Kafka connector yet, so a comparison is also one of two
versions of Spark. `python -m harness.stock_spark` only fetches it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from harness.broker import CACHE
from harness.fetching import alone

VERSION = "4.0.0"
HOME = CACHE / f"spark-{VERSION}"
POM = Path(__file__).with_name("stock-spark.xml")
LAKE_POM = Path(__file__).with_name("stock-spark-lake.xml")


def python() -> str:
    """The interpreter that has it; everything is fetched on first use."""
    with alone():
        if not (HOME / ".complete").exists():
            _fetch()
    return str(HOME / "venv" / "bin" / "python")


def jars() -> str:
    """The connector, Spark's Avro functions and what they need, as `spark.jars` wants them."""
    return _jars(POM, HOME / "jars")


def lake_jars() -> str:
    """What Spark 4.0.0 needs for tables of Delta and Iceberg."""
    return _jars(LAKE_POM, HOME / "lake-jars")


def _jars(pom: Path, directory: Path) -> str:
    fetched_by = directory.with_suffix(".xml")  # the list that the jars were fetched by
    with alone():
        if not fetched_by.exists() or fetched_by.read_text() != pom.read_text():
            _fetch_jars(pom, directory)
            fetched_by.write_text(pom.read_text())
    return ",".join(sorted(str(path) for path in directory.glob("*.jar")))


def _fetch() -> None:
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    subprocess.run([sys.executable, "-m", "venv", HOME / "venv"], check=True, timeout=120)
    install: list[str | Path] = [
        HOME / "venv" / "bin" / "python",
        "-m",
        "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
    ]
    subprocess.run([*install, f"pyspark=={VERSION}"], check=True, timeout=1200)
    (HOME / ".complete").touch()


def _fetch_jars(pom: Path, directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    copy = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    subprocess.run([*copy, f"-DoutputDirectory={directory}"], check=True, timeout=600)


if __name__ == "__main__":
    python()
    jars()
    lake_jars()
