"""`headrace spark`: a PySpark shell that knows where the brokers are, or a script run in one."""

import code
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.options import KEY_VALUE, bootstrap_option, json_option
from headrace.cli.terminal import print_json
from headrace.spark.machine import NotReady
from headrace.spark.session import default_master, session, session_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BANNER = """Spark {version} with Headrace: brokers at {bootstrap}, `spark` is the session. Try

    spark.read.format("headrace").option("valueFormat", "json").load("clicks").show()
"""


@click.command("spark")
@click.argument("script", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@bootstrap_option
@click.option("--master", help="Where Spark runs: spark://HOST:PORT, or local[N].  [default: local[*]]")
@click.option("--conf", "-c", "settings", type=KEY_VALUE, multiple=True, help="A setting of Spark's.")
@json_option
def command(
    script: Path | None,
    bootstrap: str,
    master: str | None,
    settings: tuple[tuple[str, str], ...],
    as_json: bool,
) -> None:
    """Open a PySpark shell in which `spark` reads and writes topics, or run SCRIPT in one.

    kafka.bootstrap.servers need not be given there. With --json nothing is started: it prints where the
    session would run and the settings that it would have, for those who make their own.
    """
    if as_json:
        where = master or default_master()
        print_json({"master": where, "settings": session_settings(where, dict(settings))})
        return
    try:
        spark = session("headrace", servers=bootstrap, master=master, config=dict(settings))
    except NotReady as error:
        raise click.ClickException(str(error)) from error
    names = {"spark": spark, "servers": bootstrap}
    try:
        if script is not None:
            sys.argv = [str(script)]
            runpy.run_path(str(script), init_globals=names, run_name="__main__")
        else:
            _talk(spark, bootstrap, names)
    finally:
        spark.stop()


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
    code.interact(banner, local=names, exitmsg="")
