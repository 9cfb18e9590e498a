"""A SparkSession that finds `format("headrace")`, and what a machine must have for one.

Workers must be the Python that has headrace: Spark looks for data sources in a worker, not in the driver.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.spark import worker_python
from headrace.spark.machine import check_machine
from headrace.spark.options import SERVERS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"

log = logging.getLogger("headrace.spark")

# What is good for topics; whatever the user sets wins.
DEFAULTS = {
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
    """The session of this process, made if there is none.

    `servers` are the brokers of queries that do not give kafka.bootstrap.servers. `master` is where it runs
    (all cores of this machine if nobody says otherwise, or `spark://…`), `config` are Spark's own settings.
    Raises NotReady, in one sentence, if the machine cannot run Spark.
    """
    check_machine()
    from pyspark.sql import SparkSession

    chosen = master or default_master()
    if servers is not None:
        _tell_servers(servers)
    prepare_environment(chosen)
    builder = SparkSession.builder.appName(name).master(chosen)
    for key, value in session_settings(chosen, config).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def default_master() -> str:
    return os.environ.get("SPARK_MASTER") or "local[*]"


def session_settings(master: str, config: Mapping[str, object] | None = None) -> dict[str, str]:
    """Spark's settings of a session there."""
    given = {key: str(value) for key, value in (config or {}).items()}
    return {**DEFAULTS, **_local_settings(master), **given}


def _tell_servers(servers: str) -> None:
    """To the JVM that is to be started, and so to its workers."""
    from pyspark import SparkContext

    if SparkContext._gateway is not None and os.environ.get(SERVERS) != servers:
        log.warning(
            "Spark's JVM runs already, and knows nothing of %s: give kafka.bootstrap.servers", servers
        )
    os.environ[SERVERS] = servers


def prepare_environment(master: str) -> None:
    """For driver and workers of this machine; what is set already stays."""
    python = sys.executable
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)  # else Spark warns of a name that is no address
        python = worker_python.command()
    os.environ.setdefault("PYSPARK_PYTHON", python)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def _local_settings(master: str) -> dict[str, str]:
    """A session on this machine needs no address that others could reach, and no more tasks than cores."""
    if not master.startswith("local"):
        return {}
    return {
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
    }
