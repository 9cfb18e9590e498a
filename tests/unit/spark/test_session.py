"""What a session is made with, before there is one."""

import json

from click.testing import CliRunner

from headrace.cli.main import headrace
from headrace.spark.session import session_settings


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
