"""`headrace.spark.session()`: a SparkSession in which `format("headrace")` works.

Spark looks for data sources in a Python worker, not in the driver, so the workers must run the Python that
has Headrace.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.spark import worker_python
from headrace.spark.options import SERVERS
from headrace.spark.prerequisites import check_prerequisites

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"

log = logging.getLogger("headrace.spark")

# Options whose values Spark shows nowhere: those of its own default, and what else hides a password or a key
# (`kafka.sasl.jaas.config`, `kafka.ssl.keystore.key`, `kafka.ssl.key.pem`). Spark matches names and values.
SECRET_OPTIONS = r"(?i)secret|password|token|access[.]?key|jaas|key[.]pem|keystore|private key"  # nosec B105

# The user's own settings take precedence.
DEFAULTS = {
    "spark.redaction.regex": SECRET_OPTIONS,
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}


def session(
    name: str = "headrace",
    *,
    servers: str | None = None,
    master: str | None = None,
    config: Mapping[str, object] | None = None,
) -> SparkSession:
    """Return this process's SparkSession; create it if there is none.

    `servers` is the default of kafka.bootstrap.servers. `master` says where Spark runs: `local[*]`, all cores
    of this computer, by default, or `spark://host:port`. `config` holds Spark's own settings. Raises
    MissingPrerequisite if Spark cannot run on this computer.
    """
    check_prerequisites()
    from pyspark.sql import SparkSession

    chosen = master or default_master()
    if servers is not None:
        _export_servers(servers)
    prepare_environment(chosen)
    builder = SparkSession.builder.appName(name).master(chosen)
    for key, value in session_settings(chosen, config).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def default_master() -> str:
    return os.environ.get("SPARK_MASTER") or "local[*]"


def session_settings(master: str, config: Mapping[str, object] | None = None) -> dict[str, str]:
    """Return Spark's settings for a session on this master."""
    given = {key: str(value) for key, value in (config or {}).items()}
    return {**DEFAULTS, **_local_settings(master), **given}


def _export_servers(servers: str) -> None:
    """Pass them through the environment to the JVM, and through it to the workers."""
    from pyspark import SparkContext

    if SparkContext._gateway is not None and os.environ.get(SERVERS) != servers:
        log.warning(
            "Spark's JVM was started before the session, so queries do not know the brokers %s: set the "
            "option kafka.bootstrap.servers in each query",
            servers,
        )
    os.environ[SERVERS] = servers


def prepare_environment(master: str) -> None:
    """Set the variables of driver and workers that are not set yet."""
    python = sys.executable
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)  # else Spark warns about the host name
        python = worker_python.command()
    os.environ.setdefault("PYSPARK_PYTHON", python)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def _local_settings(master: str) -> dict[str, str]:
    """On this computer: no address that others can reach, and one shuffle task per core."""
    if not master.startswith("local"):
        return {}
    return {
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
    }
