"""Runners of jobs as processes, and what their topic says about the jobs."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Self
from unittest import mock

from cli.shell import COMMAND, Done
from harness.wait import Patience, eventually
from headrace.cli.main import run

WAIT_S = 60.0


class Runner:
    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self.log = log

    @property
    def text(self) -> str:
        return self.log.read_text()

    def wait_for(self, text: str) -> None:
        patience = Patience(WAIT_S)
        while text not in self.text:
            assert self.process.poll() is None, self.text
            assert not patience.is_over, f"no {text!r} in\n{self.text}"
            time.sleep(0.02)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(120)


class Jobs:
    def __init__(self, bootstrap: str, directory: Path, topic: str) -> None:
        self.bootstrap = bootstrap
        self.directory = directory
        self.topic = topic
        self.runners: list[Runner] = []
        self.environment = os.environ | {"HEADRACE_BOOTSTRAP": bootstrap}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for runner in self.runners:
            if runner.process.poll() is None:
                runner.signal(signal.SIGCONT)
                runner.kill()
            print(f"--- {runner.log.name}\n{runner.text}")  # pytest shows it if the test fails

    def write(self, jobs: dict[str, Any], **more: Any) -> Path:
        """A file with these jobs, of which one runner at a time has all."""
        path = self.directory / "jobs.toml"
        common = {"topic": self.topic, "partitions": 1, "takeover": "4s", **more}
        lines = [f"{name} = {json.dumps(value)}" for name, value in common.items()]
        for name, options in jobs.items():
            lines.append(f"[jobs.{json.dumps(name)}]")
            lines += [f"{option} = {json.dumps(value)}" for option, value in options.items()]
        path.write_text("\n".join(lines) + "\n")
        return path

    def serve(self, jobs: dict[str, Any] | None = None, **more: Any) -> Runner:
        """Start a runner; without jobs, one with the same file as the last."""
        if jobs is not None:
            self.write(jobs, **more)
        number = len(self.runners) + 1
        log = self.directory / f"runner-{number}.log"
        arguments = ["jobs", "serve", str(self.directory / "jobs.toml"), "--name", f"runner-{number}"]
        with log.open("w") as output:
            process = subprocess.Popen(
                [*COMMAND, *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self.environment,
                text=True,
            )
        self.runners.append(Runner(process, log))
        self.runners[-1].wait_for("ready ")
        return self.runners[-1]

    def attempt(self, *arguments: str) -> Done:
        """`headrace jobs …` on this topic; in this process, because a new one takes longer than its work."""
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            mock.patch.dict(os.environ, self.environment, clear=True),
        ):
            code = run(["jobs", *arguments, "--topic", self.topic])
        texts = []
        for stream in (out, err):
            stream.flush()
            stream.seek(0)
            texts.append(stream.read())
        return Done(code, texts[0].encode(), texts[1])

    def __call__(self, *arguments: str) -> Done:
        done = self.attempt(*arguments)
        assert done.code == 0, f"{arguments}: {done.code}\n{done.err}"
        return done

    def status(self, name: str) -> Any:
        return self("status", name, "--json").json

    def wait(self, name: str, **expected: object) -> Any:
        """Until the job's status has these values; returns all of it."""
        found: list[Any] = [None]

        def ask() -> object:
            done = self.attempt("status", name, "--json")
            if done.code:
                return done.err
            found[0] = done.json
            return {key: found[0][key] for key in expected}

        eventually(ask, expected, WAIT_S)
        return found[0]
