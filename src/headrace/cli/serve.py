"""`headrace serve` with options: one node from a settings file, in this process.

The command line is checked here; then the process becomes `python -m headrace.server`, under the same pid,
so that a broker does not carry the command's libraries in its memory. Without options the node starts at once
(`__main__.py`).
"""

import os
import sys
from pathlib import Path

import click

from headrace.cli.completers import broker_settings
from headrace.cli.options import SETTING

LEVELS = ("debug", "info", "warning", "error")


@click.command("serve")
@click.argument("config", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--log-level",
    type=click.Choice(LEVELS),
    default="info",
    show_default=True,
    help="Lowest level of log lines.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format of the log on stderr.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --log-format json.")
@click.option(
    "--set",
    "settings",
    type=SETTING,
    multiple=True,
    help="Override a setting of the file.",
    shell_complete=broker_settings,
)
@click.option(
    "--pid-file", type=click.Path(dir_okay=False, path_type=Path), help="Write the process id to this file."
)
def command(
    config: Path,
    log_level: str,
    log_format: str,
    as_json: bool,
    settings: tuple[tuple[str, str], ...],
    pid_file: Path | None,
) -> None:
    """Run one node from CONFIG: a TOML file, or Kafka's server.properties, with Kafka's key names.

    Prints `ready HOST:PORT` once it serves. SIGTERM shuts it down cleanly.
    """
    arguments = [str(config), "--log-level", log_level, "--log-format", "json" if as_json else log_format]
    for key, value in settings:
        arguments += ["--set", f"{key}={value}"]
    if pid_file is not None:
        arguments += ["--pid-file", str(pid_file)]
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "headrace.server", *arguments])
