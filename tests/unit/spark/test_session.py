"""What a session is made with, before there is one."""

import json
import os
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from headrace.cli.main import headrace
from headrace.spark import worker_python
from headrace.spark.spark_session import session_settings


def test_what_the_user_sets_wins():
    settings = session_settings("local[2]", {"spark.sql.session.timeZone": "Europe/Paris", "spark.x": 1})
    assert settings["spark.sql.session.timeZone"] == "Europe/Paris"
    assert settings["spark.x"] == "1"


def test_only_a_local_session_stays_on_the_loopback():
    assert session_settings("local[2]")["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in session_settings("spark://there:7077")


def test_the_command_prints_them_without_starting_anything():
    arguments = ["spark", "--json", "--master", "spark://there:7077", "-c", "spark.executor.memory=2g"]
    done = CliRunner().invoke(headrace, arguments)
    printed = json.loads(done.output)
    assert printed["master"] == "spark://there:7077"
    assert printed["settings"]["spark.executor.memory"] == "2g"


def test_workers_take_pyspark_as_it_was_installed():
    path = os.pathsep.join(("/spark/python/lib/pyspark.zip", "/spark/lib/py4j-0.10.9.9-src.zip", "/mine"))
    kept = os.pathsep.join(("/spark/lib/py4j-0.10.9.9-src.zip", "/mine"))
    assert worker_python.without_zip(path) == kept


def test_the_command_that_workers_run_is_this_python(monkeypatch):
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("PYTHONPATH", "/spark/python/lib/pyspark.zip")
    shown = "import os, sys; print(sys.prefix, repr(os.environ['PYTHONPATH']), *sys.argv[1:])"
    done = subprocess.run(
        [worker_python.command(), "-c", shown, "one"], capture_output=True, text=True, check=True
    )
    assert Path(worker_python.command()).name == worker_python.COMMAND
    assert done.stdout.split() == [sys.prefix, "''", "one"]


def test_another_spark_keeps_its_own_pyspark(monkeypatch):
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert worker_python.command() == sys.executable
