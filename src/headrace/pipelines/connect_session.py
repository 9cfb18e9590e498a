"""A Spark Connect session on this computer or on a server, in which `format("headrace")` works.

With Connect a flow's query is a message that nothing has looked at yet, so flows may be evaluated in any
order (see headrace.pipelines.relations).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from headrace.base.extras import install_command
from headrace.spark.options import SERVERS
from headrace.spark.prerequisites import MissingPrerequisite, check_prerequisites
from headrace.spark.spark_session import LOOPBACK, prepare_environment, session_settings

# Spark warns at the start of each stream about adaptive plans, which nobody can do something about.
QUIET = {"spark.log.level": "ERROR"}


def connect_session(*, servers: str, master: str, settings: Mapping[str, str]) -> Any:
    """Return the session. `master` is local[N], or sc://host:port of a Connect server."""
    check_prerequisites()
    if problem := library_problem():
        raise MissingPrerequisite(problem)
    os.environ[SERVERS] = servers  # for the JVM, and through it for the workers
    prepare_environment(master)
    chosen = {**QUIET, **session_settings(master, settings)}
    start = _local_session if master.startswith("local") else _remote_session
    with warnings.catch_warnings():
        # settings of the JVM's start, which a server that runs already refuses
        warnings.filterwarnings("ignore", message="Failed to set", category=UserWarning)
        return start(master, chosen)


def _local_session(master: str, settings: Mapping[str, str]) -> Any:
    """Start a server in this process. Spark's own start would take port 15002, for all addresses of this
    computer, and so fail beside another pipeline.
    """
    from pyspark.sql import SparkSession as ClassicSession
    from pyspark.sql.connect.session import SparkSession

    os.environ["SPARK_LOCAL_REMOTE"] = "1"  # stopping the session stops the server, too
    # The server runs data sources with this Python; see headrace.spark.worker_python for what it saves.
    os.environ["PYSPARK_DRIVER_PYTHON"] = os.environ["PYSPARK_PYTHON"]
    options = {**settings, "spark.connect.grpc.binding.address": LOOPBACK}
    options["spark.connect.grpc.binding.port"] = "0"
    SparkSession._start_connect_server(master, options)  # leaves those options that a session takes
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    jvm = ClassicSession._instantiatedSession._jvm
    service = getattr(getattr(jvm, "org.apache.spark.sql.connect.service.SparkConnectService$"), "MODULE$")
    builder = SparkSession.builder.config(map=options)
    return builder.remote(f"sc://localhost:{service.localPort()}").getOrCreate()


def _remote_session(master: str, settings: Mapping[str, str]) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote(master)
    for name, text in settings.items():
        builder = builder.config(name, text)
    return builder.getOrCreate()


def library_problem() -> str | None:
    for library in ("grpc", "grpc_status", "google.rpc", "yaml"):
        try:
            is_there = find_spec(library) is not None
        except ModuleNotFoundError:
            is_there = False
        if not is_there:
            command = install_command("spark")
            return (
                f"pipelines need {library}, which is not installed: run `{command}` in a clone of Headrace."
            )
    return None
