"""`headrace jobs`: serves data jobs that a file declares; lists, starts and stops them."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.base.extras import MissingExtra
from headrace.cli.administer import administer
from headrace.cli.client_settings import broker_options, client_options, settings_of
from headrace.cli.jobs_text import LIST_HEADINGS, list_row, status_json, status_lines
from headrace.cli.options import json_option
from headrace.cli.suggestions import closest
from headrace.cli.terminal import count_text, note, print_json, print_table, say
from headrace.client.threads.admin import Admin
from headrace.jobs.errors import WrongJobs
from headrace.jobs.file import DEFAULT_TOPIC
from headrace.machines.jobs.job import ACTIVE, Order, Phase

if TYPE_CHECKING:
    from headrace.jobs.state_topic import JobStatus, StateTopic

F = TypeVar("F", bound=Callable[..., Any])
FOLLOW_S = 0.2


@click.group()
def jobs() -> None:
    """Run data jobs by schedule: copies, audits and reports that a file declares.

    \b
    headrace jobs serve jobs.yml       runs the jobs of the file, until Ctrl-C
    headrace jobs list                 shows all jobs
    headrace jobs run copy-clicks      runs one now
    """


command = jobs


def _topic_options(function: F) -> F:
    topic = click.option(
        "--topic", default=DEFAULT_TOPIC, show_default=True, help="Topic with the states of the jobs."
    )
    group = click.option("--group", help="Group of the runners.  [default: as the topic]")
    return topic(group(function))


def _clients(bootstrap: str) -> dict[str, dict[str, Any]]:
    return {kind: settings_of(kind, bootstrap) for kind in ("admin", "consumer", "producer")}


@jobs.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--check", is_flag=True, help="Only check the file.")
@click.option("--name", help="Name of this runner.  [default: host and process]")
@client_options
@json_option
def serve(file: Path, check: bool, name: str | None, bootstrap: str, as_json: bool) -> None:
    """Run the jobs of FILE by their schedules, until Ctrl-C or SIGTERM.

    Start it on several computers with the same file: they share the jobs, and take over from each other.
    """
    from headrace.jobs.file import load_jobs

    try:
        found = load_jobs(file)
    except WrongJobs as error:
        raise click.UsageError(str(error)) from error
    except MissingExtra as error:
        raise click.ClickException(f"{error}.") from error
    if check:
        if as_json:
            print_json({"file": str(file), "jobs": sorted(found.jobs)})
        else:
            say(f"{file}: {count_text(len(found.jobs), 'job')}, valid")
        return
    from headrace.cli.jobs_serving import serve_jobs

    serve_jobs(found, _clients(bootstrap), name, bootstrap, as_json=as_json)


@contextmanager
def _opened(
    bootstrap: str, timeout: float, topic: str, group: str | None
) -> "Iterator[tuple[Admin, StateTopic]]":
    from headrace.client.errors import KafkaError
    from headrace.jobs.state_topic import StateTopic

    with administer(bootstrap, timeout) as admin:
        states = StateTopic(admin, _clients(bootstrap), topic, group)
        try:
            with states.opened(timeout):
                states.find_owners()
                yield admin, states
        except KafkaError as error:
            if error.is_unknown_topic:
                raise click.ClickException(
                    f"topic {topic} does not exist: `headrace jobs serve FILE` creates it."
                ) from error
            raise


def _find(states: "StateTopic", name: str) -> "JobStatus":
    found = states.jobs.get(name)
    if found is None or found.described is None:
        meant = closest(name, states.jobs)
        hint = f"did you mean {meant}?" if meant else "`headrace jobs list` shows all."
        raise click.UsageError(f"there is no job {name}; {hint}")
    return found


@jobs.command("list")
@_topic_options
@broker_options
def list_jobs(topic: str, group: str | None, bootstrap: str, timeout: float, as_json: bool) -> None:
    """Show all jobs: what each does now, how far it is behind, and what went wrong last."""
    with _opened(bootstrap, timeout, topic, group) as (_, states):
        found = [one for _, one in sorted(states.jobs.items()) if one.described is not None]
    if as_json:
        print_json([status_json(one) for one in found])
    else:
        print_table(LIST_HEADINGS, [list_row(one) for one in found], right=("RUN", "LAG"))


@jobs.command()
@click.argument("name")
@_topic_options
@broker_options
def status(name: str, topic: str, group: str | None, bootstrap: str, timeout: float, as_json: bool) -> None:
    """Show one job: its state, progress, batches and last error."""
    with _opened(bootstrap, timeout, topic, group) as (_, states):
        found = _find(states, name)
    if as_json:
        print_json(status_json(found))
    else:
        for line in status_lines(found, time.time_ns() // 1_000_000):
            say(line)


@jobs.command()
@click.argument("name")
@click.option("--again", is_flag=True, help="Begin at the start: what was copied before does not count.")
@click.option("--wait", is_flag=True, help="Wait until the run has ended; exit code 1 if it failed.")
@_topic_options
@broker_options
def run(
    name: str,
    again: bool,
    wait: bool,
    topic: str,
    group: str | None,
    bootstrap: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Run a job now, also one that was stopped or has failed."""
    with _opened(bootstrap, timeout, topic, group) as (_, states):
        _ask(states, name, Order.AGAIN if again else Order.RUN, wait=wait, as_json=as_json)
        found = states.jobs[name]
    if not wait:
        return
    assert found.described is not None
    state = found.described.state
    is_good = state.phase in (Phase.WAITING, Phase.DONE) and state.error is None
    findings = found.progress.findings if found.progress is not None else None
    if not is_good or findings:
        raise click.exceptions.Exit(1)


@jobs.command()
@click.argument("name")
@click.option("--wait", is_flag=True, help="Wait until it has stopped.")
@_topic_options
@broker_options
def stop(
    name: str, wait: bool, topic: str, group: str | None, bootstrap: str, timeout: float, as_json: bool
) -> None:
    """Stop a job after its batch. It stays stopped until `headrace jobs run`."""
    with _opened(bootstrap, timeout, topic, group) as (_, states):
        _ask(states, name, Order.STOP, wait=wait, as_json=as_json)


def _ask(states: "StateTopic", name: str, order: Order, *, wait: bool, as_json: bool) -> None:
    found = _find(states, name)
    assert found.described is not None
    if found.described.state.phase is Phase.REMOVED:
        raise click.UsageError(f"job {name} is not in the file of its runner any more.")
    if found.owner is None:
        note(f"no runner serves job {name} now: the order waits for one")
    offset = states.order(name, order)
    if wait:
        _wait(states, name, offset)
        found = states.jobs[name]
        assert found.described is not None
        state = found.described.state
        if as_json:
            print_json(status_json(found))
            return
        for line in status_lines(found, time.time_ns() // 1_000_000):
            say(line)
        if state.error is not None and order is not Order.STOP:
            say(state.error.message, err=True, fg="red")
    elif as_json:
        say(json.dumps({"job": name, "order": order, "offset": offset}))


def _wait(states: "StateTopic", name: str, offset: int) -> None:
    while True:
        described = states.jobs[name].described
        assert described is not None
        if described.state.order >= offset and described.state.phase not in ACTIVE:
            return
        states.follow(FOLLOW_S)
