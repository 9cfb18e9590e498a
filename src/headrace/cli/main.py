"""The command line: a command group that imports a subcommand only when it is called, and the exit codes.

Exit codes: 0 done, 1 failed, 2 wrong usage. Errors go to stderr as one sentence and what to do about it, or
as JSON (reporting.py). A closed pipe (`headrace consume … | head`) and Ctrl-C end the command quietly.
"""

import os
import sys
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import NoReturn

import click

from headrace import __version__
from headrace.cli.reporting import (
    report_click,
    report_client,
    report_interrupted,
    report_system,
    wants_json,
)

COMPLETING = "_HEADRACE_COMPLETE"  # set by a shell that asks for completions

# name → module and what `headrace --help` says; the rest of a command's help is in its own module
COMMANDS = {
    "up": ("up", "Run a development broker, or a cluster of several, until Ctrl-C."),
    "serve": ("serve", "Run one node from a settings file."),
    "topic": ("topic", "Create, list, describe, alter, trim and delete topics."),
    "produce": ("produce", "Write records from stdin or files to a topic."),
    "consume": ("consume", "Print records of a topic."),
    "redrive": ("redrive", "Send dead letters back to the topics they came from."),
    "group": ("group", "List, describe, reset and delete consumer groups; show their lag."),
    "schema": ("schema", "List, show, register, check and delete schemas of a registry."),
    "config": ("config", "Show and change settings of topics, brokers and groups."),
    "acl": ("acl", "List, add and remove access control rules; explain what they decide."),
    "user": ("user", "List, add and remove users with SCRAM passwords; change passwords."),
    "quota": ("quota", "List, set and remove quotas; explain which one holds for a client."),
    "token": ("token", "Create, list, renew and expire delegation tokens."),
    "tenant": ("tenant", "Create, list, describe and remove tenants: prefixes with users, rules and limits."),
    "cluster": ("cluster", "Show the health, the transactions and the sinks of a cluster."),
    "spark": ("spark", "Open a PySpark shell that reads and writes topics, or run a script in one."),
    "pipeline": ("pipeline", "Make, test, explain and run pipelines declared in Python and SQL files."),
    "jobs": (
        "jobs",
        "Run copies, audits and reports by schedule, on runners that take over for others.",
    ),
    "lake": ("lake", "Copy topics into Delta tables, and prove that they are complete."),
    "strays": ("strays", "List, restore and remove partition directories that the metadata does not know."),
    "dump": ("dump", "Show and verify the files of a log."),
    "bench": ("bench", "Measure the throughput and latency of a broker, in about a minute."),
    "demo": ("demo", "Write a million records, kill the broker with kill -9, and show that nothing is lost."),
    "doctor": ("doctor", "Check whether a broker can run on this computer."),
    "completion": ("completion", "Print the script that completes commands in a shell."),
}


class ReaderGone(Exception):
    """Nobody reads stdout any more, as after `| head`."""


class LazyCommands(click.Group):
    """Knows its subcommands by name; imports a module when its command is run or its help is shown."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = import_module(f"headrace.cli.{COMMANDS[name][0]}").command
        return command

    def resolve_command(
        self, context: click.Context, words: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(context, words)
        except click.NoSuchCommand as error:  # click suggests only commands that are imported
            raise click.NoSuchCommand(error.command_name, possibilities=COMMANDS, ctx=context) from None

    def invoke(self, context: click.Context) -> object:
        try:
            return super().invoke(context)
        except BrokenPipeError as error:
            raise ReaderGone from error  # click itself would end with exit code 1

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=LazyCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="headrace")
def headrace() -> None:
    """A distributed log that speaks Kafka's wire protocol.

    The address of the brokers is --bootstrap, else $HEADRACE_BOOTSTRAP, else localhost:9092.
    """


def run(arguments: list[str]) -> int:
    """Runs one command line and returns the exit code."""
    as_json = wants_json(arguments)
    if COMPLETING in os.environ:
        _complete()
    try:
        with _shown_warnings(arguments, as_json=as_json):
            code = headrace.main(args=arguments, prog_name="headrace", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        return report_click(error, as_json=as_json)
    except (click.Abort, KeyboardInterrupt):
        return report_interrupted(as_json=as_json)
    except (ReaderGone, BrokenPipeError):
        # without this the interpreter complains when it flushes at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        return _report(error, as_json=as_json)


def _shown_warnings(arguments: list[str], *, as_json: bool) -> AbstractContextManager[None]:
    """Loads nothing for `serve`, which has no client, and for `up`, which needs one only for a sample."""
    if arguments[:1] in (["serve"], ["up"]):
        return nullcontext()
    from headrace.cli.client_warnings import shown_warnings

    return shown_warnings(as_json=as_json)


def _complete() -> NoReturn:
    """Prints completions, and nothing else: the shell shows everything that is printed."""
    import_module("headrace.cli.completion")  # knows bash better than click does
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    try:
        headrace.main(prog_name="headrace")
    finally:
        sys.stdout.flush()
        os._exit(0)  # a thread that still waits for a broker must not hold up the shell


def _report(error: Exception, *, as_json: bool) -> int:
    """Reports errors of the client and the system. Any other exception is a bug and keeps its traceback."""
    from headrace.client.errors import ClientError

    if isinstance(error, ClientError):
        return report_client(error, as_json=as_json)
    if isinstance(error, OSError):
        return report_system(error, as_json=as_json)
    raise error
