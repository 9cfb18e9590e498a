"""Errors of a command on stderr: sentences for people, one JSON object per line with --json.

A script tests the field `error`: Kafka's name if a broker refused the request, otherwise a name of ours in
the same spelling. click finds usage errors before it has parsed the options, hence `wants_json`.
"""

import errno
import re
import sys
from collections.abc import Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from headrace.cli.terminal import say, say_lines, visible

if TYPE_CHECKING:
    from headrace.client.errors import ClientError

FAILED, WRONG_USE = 1, 2  # exit codes

# Options and commands that help; the client's own advice names none, since its users may not have them.
_OPTIONS = {
    "GROUP_ID_NOT_FOUND": "`headrace group list` shows all.",
    "INVALID_REPLICATION_FACTOR": "`headrace cluster describe` shows the brokers.",
    "CLUSTER_AUTHORIZATION_FAILED": "--client-config FILE says who you are.",
    "NON_EMPTY_GROUP": "`headrace group describe` shows the members.",
    "OFFSET_OUT_OF_RANGE": "`headrace topic describe` shows which offsets exist.",
    "DELEGATION_TOKEN_AUTH_DISABLED": (  # nosec B105
        "Set delegation.token.secret.key on all nodes, to the same long random text."
    ),
    "SECURITY_DISABLED": "Set authorizer.class.name=standard and super.users on the brokers.",
    "TRANSACTIONAL_ID_NOT_FOUND": "`headrace cluster transactions` shows all.",
    "UNKNOWN_TOPIC_OR_PARTITION": "`headrace topic list` shows all; `headrace topic create` creates one.",
    "REGISTRY_UNREACHABLE": "`headrace up` serves a registry at http://localhost:9644.",
    "UNREACHABLE": "`headrace up` starts a broker.",
    "TIMED_OUT": "--timeout gives the command more time.",
    "TOPIC_ALREADY_EXISTS": "With --if-not-exists an existing topic is not an error.",
    "INVALID_CONFIG": "`headrace config get --all` shows every key.",
    "INVALID_RECORD": "--key-separator splits each line into key and value.",
    "UNSUPPORTED_COMPRESSION_TYPE": "--compression chooses the codec.",
}


class Report(NamedTuple):
    """What `--json` prints about an error; the names are those that scripts read."""

    error: str
    message: str
    advice: str = ""
    code: int | None = None  # Kafka's, the registry's or the system's number
    retriable: bool = False
    exit_code: int = FAILED
    failures: tuple["Report", ...] = ()  # of a request that failed for several things


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether --json is among the options of this command line."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in options


def report_click(error: click.ClickException, *, as_json: bool) -> int:
    """Reports wrong usage and errors of the command itself; returns the exit code."""
    is_usage = isinstance(error, click.UsageError)
    code = WRONG_USE if is_usage else FAILED
    if not as_json:
        if is_usage:  # others may have several lines, such as the end of a log
            error.message = visible(error.message)  # type: ignore[misc]  # Final in click
        text = StringIO()
        error.show(text)
        say_lines(text.getvalue().removesuffix("\n"), err=True)
        return code
    context = error.ctx if isinstance(error, click.UsageError) else None
    advice = f"Try '{context.command_path} --help'." if context is not None else ""
    name = "USAGE" if is_usage else _name_of(type(error), otherwise="FAILED")
    _print_json(Report(name, error.format_message(), advice, exit_code=code))
    return code


def report_client(error: "ClientError", *, as_json: bool) -> int:
    report = _client_report(error)
    if as_json:
        _print_json(report)
    else:
        say(f"Error: {report.message}", err=True)
        if report.advice:
            say(report.advice, err=True)
    return report.exit_code


def report_system(error: OSError, *, as_json: bool) -> int:
    where = f"{error.filename}: " if error.filename else ""
    message = sentence(where + (error.strerror or str(error)))
    if as_json:
        name = errno.errorcode.get(error.errno, "OS_ERROR") if error.errno is not None else "OS_ERROR"
        _print_json(Report(name, message, code=error.errno))
    else:
        say(f"Error: {message}", err=True)
    return FAILED


def report_interrupted(*, as_json: bool) -> int:
    """Ctrl-C, or a question that was answered with no. People know that already; scripts get an object."""
    if as_json:
        _print_json(Report("ABORTED", "The command was interrupted, or its question was answered with no."))
    return FAILED


def sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else text + "."


def _client_report(error: "ClientError") -> Report:
    from headrace.client.errors import PartlyFailed

    message = sentence(str(error))
    failures: tuple[Report, ...] = ()
    cause: ClientError = error
    if isinstance(error, PartlyFailed):
        failures = tuple(_client_report(one) for one in error.failures.values())
        cause = next(iter(error.failures.values()))
    name: str = getattr(cause, "name", "") or _name_of(type(cause))
    code: int | None = getattr(cause, "code", None)
    advice = error.advice
    if "`headrace " not in advice:  # else a command has found something better to say
        advice = f"{advice} {_OPTIONS.get(name, '')}".strip()
    return Report(name, message, advice, code, error.is_retriable, failures=failures)


def _name_of(kind: type[BaseException], *, otherwise: str = "") -> str:
    """TimedOut → TIMED_OUT; `otherwise` for click's own class, whose name says nothing."""
    if otherwise and kind is click.ClickException:
        return otherwise
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind.__name__).upper()


def _print_json(report: Report) -> None:
    sys.stdout.flush()  # results that came before it come first
    import json

    say(json.dumps(_as_json(report), ensure_ascii=False), err=True)


def _as_json(report: Report) -> dict[str, Any]:
    fields = report._asdict()
    failures = fields.pop("failures")
    if failures:
        fields["failures"] = [_as_json(each) for each in failures]
    return fields
