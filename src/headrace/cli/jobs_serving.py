"""`headrace jobs serve`: the runner in the foreground."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Mapping
from typing import Any

import click

from headrace.cli.administer import administer
from headrace.cli.terminal import count_text, print_json, say
from headrace.jobs.errors import JobFailed
from headrace.jobs.file import JobsFile
from headrace.jobs.runner import Runner
from headrace.jobs.state_topic import ensure_topics
from headrace.server.logs import Log

START_S = 30.0


def serve_jobs(
    jobs: JobsFile,
    clients: Mapping[str, Mapping[str, Any]],
    name: str | None,
    bootstrap: str,
    *,
    as_json: bool,
) -> None:
    runner_name = name or f"{socket.gethostname()}-{os.getpid()}"
    with administer(bootstrap, START_S) as admin:
        partitions = ensure_topics(admin, jobs.topic, jobs.partitions)
    log = Log(format="json" if as_json else "text")
    if partitions != jobs.partitions:
        log.warning("partitions_differ", topic=jobs.topic, file=jobs.partitions, topic_has=partitions)
    try:
        asyncio.run(_serve(jobs, clients, runner_name, partitions, log, as_json=as_json))
    except JobFailed as error:
        raise click.ClickException(f"{error}. {error.advice}") from error


async def _serve(
    jobs: JobsFile,
    clients: Mapping[str, Mapping[str, Any]],
    name: str,
    partitions: int,
    log: Log,
    *,
    as_json: bool,
) -> None:
    def tell() -> None:
        if as_json:
            print_json({"ready": name, "jobs": len(jobs.jobs)})
        else:
            say(f"ready {name}: {count_text(len(jobs.jobs), 'job')}")
        sys.stdout.flush()

    runner = Runner(jobs, clients, name=name, partitions=partitions, log=log, on_ready=tell)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, runner.stop)
    await runner.run()
