"""The entry point: a command group that imports a subcommand only when it is called, and one door for errors.

Exit codes: 0 done, 1 failed, 2 wrong use. Errors go to stderr as one sentence and what to do about it. A
reader that went away (`headrace consume … | head`) and Ctrl-C end the command quietly.
"""

import os
import sys
from importlib import import_module

import click

from headrace import __version__

# name → module and what `headrace --help` says; the rest of a command's help is in its own module
COMMANDS = {
    "up": ("up", "Start a development broker and wait until it serves."),
    "serve": ("serve", "Run one node from a settings file."),
    "topic": ("topic", "Create, list, describe, alter and delete topics."),
    "produce": ("produce", "Write records from stdin or files to a topic."),
    "consume": ("consume", "Print records of a topic."),
    "redrive": ("redrive", "Send dead letters back to the topics they came from."),
    "group": ("group", "List, describe, reset and delete consumer groups; their lag."),
    "config": ("config", "Show and change settings of topics, brokers and groups."),
    "cluster": ("cluster", "Show the brokers, the transactions and the sinks of a cluster."),
    "spark": ("spark", "Open a PySpark shell that reads and writes topics, or run a script in one."),
    "dump": ("dump", "Show and verify the files of a log."),
    "bench": ("bench", "Measure a broker from here, quickly."),
    "demo": ("demo", "A million records, kill -9, and nothing lost."),
    "doctor": ("doctor", "Check whether this machine is fit to run a broker."),
}


class ReaderGone(Exception):
    """Nobody reads stdout any more, as after `| head`."""


class LazyCommands(click.Group):
    """Knows its subcommands by name; a module is imported when its command is run or asks for help."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = import_module(f"headrace.cli.{COMMANDS[name][0]}").command
        return command

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


def main() -> None:
    """What the `headrace` script runs."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Carries out one command line; the exit code."""
    try:
        code = headrace.main(args=arguments, prog_name="headrace", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.UsageError as error:
        error.show()
        return 2
    except click.ClickException as error:
        error.show()
        return 1
    except (click.Abort, KeyboardInterrupt):
        return 1
    except (ReaderGone, BrokenPipeError):
        # without this the interpreter complains when it flushes at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        return _report(error)


def _report(error: Exception) -> int:
    """Tells what the client or the system could not do; everything else is a bug and keeps its traceback."""
    from headrace.client.errors import ClientError

    if isinstance(error, ClientError):
        click.echo(f"Error: {_sentence(str(error))}", err=True)
        if error.advice:
            click.echo(error.advice, err=True)
        return 1
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        click.echo(f"Error: {_sentence(where + (error.strerror or str(error)))}", err=True)
        return 1
    raise error


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else text + "."


if __name__ == "__main__":
    main()
