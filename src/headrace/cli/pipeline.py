"""`headrace pipeline`: makes, tests, explains and runs declared pipelines."""

import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.base.extras import MissingExtra, require
from headrace.cli.options import bootstrap_option, json_option
from headrace.cli.spark_errors import sentence_of
from headrace.cli.spark_start import quiet_start
from headrace.cli.terminal import count_text, print_json, print_table, say, say_lines, say_marked
from headrace.pipelines.errors import InvalidPipeline, ProjectError
from headrace.pipelines.project import Project, Trigger, find_project, load_project, parse_trigger

if TYPE_CHECKING:
    from headrace.pipelines.case_runner import CaseResult
    from headrace.pipelines.cases import Case

F = TypeVar("F", bound=Callable[..., Any])

WRONG_PIPELINE = 2  # exit code


@click.group()
def pipeline() -> None:
    """Make, test, explain and run pipelines that are declared in Python and SQL files.

    \b
    headrace pipeline init clicks      makes a project
    headrace pipeline test clicks      runs its cases, without a broker
    headrace pipeline run clicks       runs it
    """
    try:
        require("yaml", "`headrace pipeline`")
    except MissingExtra as error:
        raise click.ClickException(f"{error}.") from error


command = pipeline

project_argument = click.argument(
    "project", default=".", type=click.Path(exists=True, path_type=Path), metavar="[PROJECT]"
)


def _master_option(function: F) -> F:
    return click.option(
        "--master",
        default="local[*]",
        show_default=True,
        help="Where Spark runs: local[N], or sc://HOST:PORT of a Spark Connect server.",
    )(function)


@contextmanager
def _wrong_projects_told(*, as_json: bool = False) -> Iterator[None]:
    """Ends with exit code 2 and one line for each problem."""
    from headrace.pipelines.explaining import problems_json

    try:
        yield
    except InvalidPipeline as error:
        if as_json:
            print_json({"error": "INVALID_PIPELINE", "problems": problems_json(error.problems)})
        else:
            for problem in error.problems:
                say(f"{problem}", err=True, fg="red")
        raise click.exceptions.Exit(WRONG_PIPELINE) from error
    except ProjectError as error:
        raise click.UsageError(str(error)) from error


def _load(path: Path) -> Project:
    return load_project(find_project(path.resolve()))


def _session(project: Project, bootstrap: str, master: str) -> Any:
    from headrace.pipelines.connect_session import connect_session
    from headrace.spark.prerequisites import MissingPrerequisite

    try:
        with quiet_start():
            return connect_session(servers=bootstrap, master=master, settings=project.spark_settings)
    except MissingPrerequisite as error:
        raise click.ClickException(str(error)) from error


# --- projects --------------------------------------------------------------------------------------------


@pipeline.command()
@click.argument("directory", type=click.Path(path_type=Path))
@json_option
def init(directory: Path, as_json: bool) -> None:
    """Make a project in a new DIRECTORY: a pipeline that cleans and counts clicks, and a case for it."""
    from headrace.pipelines.templates import write_project

    with _wrong_projects_told():
        files = [str(file) for file in write_project(directory)]
    if as_json:
        print_json({"files": files})
        return
    for file in files:
        say(file)
    say(f"next: headrace pipeline test {directory}")


@pipeline.command()
@project_argument
@_master_option
@bootstrap_option
@json_option
def explain(project: Path, master: str, bootstrap: str, as_json: bool) -> None:
    """Show what the pipeline reads and writes, and the guarantee of each flow; nothing is read or written.

    Exit code 2 if the pipeline cannot run: cycles, unknown columns, two writers of one target, elements that
    the runner does not support.
    """
    from headrace.pipelines.explaining import explain_json, explain_text

    with _wrong_projects_told(as_json=as_json):
        found = _load(project)
        found.definition_files()
        spark = _session(found, bootstrap, master)
        try:
            with tempfile.TemporaryDirectory() as empty:
                graph, columns = _explained(spark, found, Path(empty))
        finally:
            spark.stop()
    if as_json:
        print_json(explain_json(graph, columns))
    else:
        say_lines(explain_text(graph, columns))


def _explained(spark: Any, project: Project, storage: Path) -> tuple[Any, dict[str, str]]:
    from headrace.pipelines.definitions import load_definitions
    from headrace.pipelines.running import Runner

    definitions = load_definitions(spark, project)
    return definitions.graph, Runner(spark, definitions, storage).frames.columns()


# --- cases -----------------------------------------------------------------------------------------------


@pipeline.command()
@project_argument
@click.option("--case", "chosen", multiple=True, metavar="NAME", help="Only cases whose name has this text.")
@_master_option
@json_option
def test(project: Path, chosen: tuple[str, ...], master: str, as_json: bool) -> None:
    """Run the cases in cases/*.yml with a broker in memory; exit code 1 if one fails.

    Each case runs twice: the second run must add no rows. No other broker is used, and the project's storage
    is not touched.
    """
    with _wrong_projects_told(as_json=as_json):
        found = _load(project)
        cases = _cases(found, chosen)
        results = _run_cases(found, cases, master)
    failed = [one for one in results if one.failures]
    if as_json:
        print_json(
            [{"case": one.case.name, "file": one.case.file, "failures": one.failures} for one in results]
        )
    else:
        for one in results:
            mark, colour = ("failed", "red") if one.failures else ("ok", "green")
            say_marked(mark, colour, one.case.name)
            for line in one.failures:
                say(f"    {line}")
        say(f"{count_text(len(results), 'case')}, {len(failed)} failed")
    if failed:
        raise click.exceptions.Exit(1)


def _cases(project: Project, chosen: tuple[str, ...]) -> "list[Case]":
    from headrace.pipelines.cases import load_cases

    files = sorted((project.root / "cases").glob("*.y*ml"))
    cases = [case for file in files for case in load_cases(file)]
    if chosen:
        cases = [case for case in cases if any(text in case.name for text in chosen)]
    if not cases:
        raise ProjectError(f"{project.root / 'cases'} has no case to run")
    return cases


def _run_cases(project: Project, cases: "list[Case]", master: str) -> "list[CaseResult]":
    from headrace.pipelines.case_runner import BROKER_SETTINGS
    from headrace.testing import Broker

    with Broker(BROKER_SETTINGS) as broker, tempfile.TemporaryDirectory() as directory:
        spark = _session(project, broker.bootstrap_servers, master)
        try:
            from headrace.pipelines.case_runner import run_case
            from headrace.pipelines.definitions import load_definitions

            definitions = load_definitions(spark, project, Trigger("once"))
            return [
                run_case(spark, definitions, broker, case, Path(directory) / str(number))
                for number, case in enumerate(cases)
            ]
        finally:
            spark.stop()


# --- runs ------------------------------------------------------------------------------------------------


def _trigger(context: click.Context, parameter: click.Parameter, text: str | None) -> Trigger | None:
    try:
        return None if text is None else parse_trigger(text)
    except ProjectError as error:
        raise click.BadParameter(str(error)) from error


@pipeline.command()
@project_argument
@click.option(
    "--trigger",
    callback=_trigger,
    metavar="WHEN",
    help="once, continuous, or an interval such as 10s.  [default: the project's headrace.trigger, or once]",
)
@_master_option
@bootstrap_option
@json_option
def run(project: Path, trigger: Trigger | None, master: str, bootstrap: str, as_json: bool) -> None:
    """Run the pipeline: until it is caught up, or with --trigger until Ctrl-C or SIGTERM.

    A stop lets running micro-batches end. The next run continues where this one ended.
    """
    from headrace.pipelines.run_state import STATUS_HEADINGS, status_rows

    with _wrong_projects_told(as_json=as_json):
        found = _load(project)
        found.definition_files()
        spark = _session(found, bootstrap, master)
        try:
            state = _run(spark, found, trigger)
        finally:
            spark.stop()
    if as_json:
        print_json(asdict(state))
    else:
        print_table(STATUS_HEADINGS, status_rows(state), right=STATUS_HEADINGS[1:6])


def _run(spark: Any, project: Project, trigger: Trigger | None) -> Any:
    from headrace.pipelines.definitions import load_definitions
    from headrace.pipelines.running import FlowFailed, Runner

    stopping = threading.Event()
    runner = Runner(spark, load_definitions(spark, project, trigger), project.storage, pid=os.getpid())
    before = {
        number: signal.signal(number, lambda *_: stopping.set()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        runner.run(stopping.is_set)
    except FlowFailed as error:
        said = sentence_of(error.__cause__) if error.__cause__ is not None else None
        raise click.ClickException(f"flow {error.flow} failed: {said}" if said else str(error)) from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return runner.state


@pipeline.command()
@project_argument
@json_option
def status(project: Path, as_json: bool) -> None:
    """Show what the flows have done: rows, rates, watermarks, state and expectations that were not met."""
    from headrace.pipelines.run_state import STATUS_HEADINGS, read_state, status_rows

    with _wrong_projects_told():
        state = read_state(_load(project).storage / "headrace")
    is_alive = state.is_alive(time.time())
    if as_json:
        print_json({**asdict(state), "is_alive": is_alive})
        return
    what = f"runs in process {state.pid}" if is_alive else "does not run"
    say(f"pipeline {state.pipeline} {what}")
    print_table(STATUS_HEADINGS, status_rows(state), right=STATUS_HEADINGS[1:6])
    for name, flow in state.flows.items():
        if flow.error:
            say_marked("error", "red", f"{name}: {flow.error}")


@pipeline.command()
@click.argument("project", type=click.Path(exists=True, path_type=Path))
@click.argument("name")
@click.option("--limit", "-n", type=click.IntRange(min=1), help="Stop after this many rows.")
@json_option
def read(project: Path, name: str, limit: int | None, as_json: bool) -> None:
    """Print the rows of the table or materialized view NAME, without Spark."""
    from headrace.pipelines.reading import read_table

    with _wrong_projects_told():
        rows = read_table(project, name).slice(0, limit)
    if as_json:
        print_json([{each: _plain(value) for each, value in row.items()} for row in rows.to_pylist()])
    else:
        columns = [[_plain(value) for value in column.to_pylist()] for column in rows.columns]
        print_table([each.upper() for each in rows.column_names], zip(*columns, strict=True))


def _plain(value: Any) -> Any:
    """What JSON can have: moments and bytes as text."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return value if isinstance(value, str | int | float | None) else str(value)
