"""The session of a pipeline: its settings, and what has to be installed."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from headrace.pipelines import connect_session
from headrace.pipelines.connect_session import library_problem
from headrace.spark.prerequisites import MissingPrerequisite


class Builder:
    def __init__(self) -> None:
        self.settings: dict[str, str] = {}

    def remote(self, master: str) -> Builder:
        self.settings["remote"] = master
        return self

    def config(self, name: str = "", text: str = "", *, map: Mapping[str, str] | None = None) -> Builder:
        self.settings.update(map if map is not None else {name: text})
        return self

    def getOrCreate(self) -> dict[str, str]:
        return self.settings


class ConnectSession:
    """A server that listens on port 4711."""

    builder = Builder()
    started: dict[str, str] = {}

    @classmethod
    def _start_connect_server(cls, master: str, options: dict[str, str]) -> None:
        cls.started = {"master": master, **options}
        options.pop("spark.log.level", None)  # for the start alone


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Any:
    variables = ("HEADRACE_BOOTSTRAP", "SPARK_LOCAL_IP", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    for name in (*variables, "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED"):
        monkeypatch.setenv(name, "before")
    service = {"MODULE$": SimpleNamespace(localPort=lambda: 4711)}
    jvm = SimpleNamespace()
    setattr(jvm, "org.apache.spark.sql.connect.service.SparkConnectService$", SimpleNamespace(**service))
    sql, connect = ModuleType("pyspark.sql"), ModuleType("pyspark.sql.connect.session")
    classic = SimpleNamespace(builder=Builder(), _instantiatedSession=SimpleNamespace(_jvm=jvm))
    sql.SparkSession = classic  # type: ignore[attr-defined]
    monkeypatch.setattr(ConnectSession, "builder", Builder())
    connect.SparkSession = ConnectSession  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyspark.sql", sql)
    monkeypatch.setitem(sys.modules, "pyspark.sql.connect.session", connect)
    monkeypatch.setattr(connect_session, "check_prerequisites", lambda: None)
    monkeypatch.setattr(connect_session, "library_problem", lambda: None)
    return lambda master="local[2]", **settings: connect_session.connect_session(
        servers="b:1", master=master, settings=settings
    )


def test_a_server_on_this_computer_has_a_port_of_its_own(session: Any) -> None:
    made = session(**{"spark.sql.session.timeZone": "Europe/Paris"})
    started = ConnectSession.started
    assert (started["master"], started["spark.log.level"]) == ("local[2]", "ERROR")
    assert started["spark.connect.grpc.binding.port"] == "0"
    assert started["spark.connect.grpc.binding.address"] == "127.0.0.1"
    assert made["remote"] == "sc://localhost:4711"
    assert made["spark.sql.session.timeZone"] == "Europe/Paris"
    assert os.environ["SPARK_LOCAL_REMOTE"] == "1"
    os.environ["PYSPARK_PYTHON"] = "a-python"
    session()
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == "a-python"
    session(**{"spark.log.level": "INFO"})
    assert ConnectSession.started["spark.log.level"] == "INFO"


def test_a_server_elsewhere(session: Any) -> None:
    made = session("sc://there:15002", **{"spark.x": "y"})
    assert (made["remote"], made["spark.x"]) == ("sc://there:15002", "y")
    assert "spark.driver.host" not in made


def test_a_library_is_missing(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect_session, "library_problem", lambda: "pipelines need grpc")
    with pytest.raises(MissingPrerequisite, match="pipelines need grpc"):
        session()


@pytest.mark.parametrize("is_package_missing", [False, True])
def test_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch, is_package_missing: bool) -> None:
    def find(name: str) -> object | None:
        if is_package_missing:
            raise ModuleNotFoundError(name)
        return None if name == "grpc_status" else object()

    monkeypatch.setattr(connect_session, "find_spec", find)
    assert "which is not installed: run" in (library_problem() or "")
    monkeypatch.setattr(connect_session, "find_spec", lambda name: object())
    assert library_problem() is None
