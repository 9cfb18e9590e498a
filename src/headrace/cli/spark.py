"""`headrace spark`: a PySpark shell that is connected to the brokers, or a script that runs in one."""

import code
import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.options import KEY_VALUE, bootstrap_option, json_option
from headrace.cli.spark_errors import line_of, sentence_of
from headrace.cli.spark_start import quiet_start
from headrace.cli.terminal import note, print_json, say
from headrace.spark.prerequisites import MissingPrerequisite
from headrace.spark.spark_session import default_master, session, session_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STDIN = "<stdin>"
TASK_LOGGERS = ("org.apache.spark.executor.Executor", "org.apache.spark.scheduler.TaskSetManager")
BANNER = """Spark {version} with Headrace: brokers at {bootstrap}, `spark` is the session. Try

    spark.read.format("headrace").option("valueFormat", "json").load("clicks").show()
"""


@click.command("spark")
@click.argument("script", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@bootstrap_option
@click.option("--master", help="Where Spark runs: spark://HOST:PORT, or local[N].  [default: local[*]]")
@click.option("--conf", "-c", "settings", type=KEY_VALUE, multiple=True, help="A Spark setting.")
@json_option
def command(
    script: Path | None,
    bootstrap: str,
    master: str | None,
    settings: tuple[tuple[str, str], ...],
    as_json: bool,
) -> None:
    """Open a PySpark shell in which `spark` reads and writes topics, or run SCRIPT or a program from stdin.

    You need not set kafka.bootstrap.servers there. With --json it starts nothing: it prints the master and
    the settings of the session, for a session that you create yourself.
    """
    if as_json:
        where = master or default_master()
        print_json({"master": where, "settings": session_settings(where, dict(settings))})
        return
    try:
        with quiet_start():
            spark = session("headrace", servers=bootstrap, master=master, config=dict(settings))
    except MissingPrerequisite as error:
        raise click.ClickException(str(error)) from error
    names: dict[str, Any] = {"spark": spark, "servers": bootstrap}
    try:
        if script is not None:
            sys.argv = [str(script)]
            sys.path.insert(0, str(script.resolve().parent))  # where Python itself looks first
            with _told_shortly(str(script)):
                runpy.run_path(str(script), init_globals=names, run_name="__main__")
            return
        names["__name__"] = "__main__"  # functions of a main program travel to the workers as they are
        _hush_failures(spark)
        if sys.stdin.isatty():
            _talk(spark, bootstrap, names)
        else:
            with _told_shortly(STDIN):
                exec(compile(sys.stdin.read(), STDIN, "exec"), names)  # nosec B102  # the user runs their own program
    finally:
        spark.stop()


@contextmanager
def _told_shortly(filename: str) -> Iterator[None]:
    """Ends the command, after an error of Headrace, with one sentence and the line of the program."""
    try:
        yield
    except Exception as error:
        sentence = sentence_of(error)
        if sentence is None:
            raise
        raise click.ClickException(f"{filename}, line {line_of(error, filename)}: {sentence}") from error


def _hush_failures(spark: "SparkSession") -> None:
    """Turns off Spark's log of failed tasks: the error that the query raises has the reason already."""
    if spark.sparkContext.master.startswith("local"):
        log4j = spark._jvm.org.apache.logging.log4j
        for name in TASK_LOGGERS:
            log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)


class _Shell(code.InteractiveConsole):
    def showtraceback(self) -> None:
        """Shows one sentence for an error of Headrace; `traceback.print_last()` shows all of it."""
        error = sys.exc_info()[1]
        sentence = None if error is None else sentence_of(error)
        if error is None or sentence is None:
            super().showtraceback()
            return
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
        say(sentence, fg="red", err=True)
        note("import traceback; traceback.print_last()  # shows where it came from")


def _talk(spark: "SparkSession", bootstrap: str, names: dict[str, Any]) -> None:
    banner = BANNER.format(version=spark.version, bootstrap=bootstrap)
    try:
        import readline
        import rlcompleter
    except ImportError:  # not on every system
        pass
    else:
        readline.set_completer(rlcompleter.Completer(names).complete)
        readline.parse_and_bind("tab: complete")
    _Shell(names).interact(banner, exitmsg="")
