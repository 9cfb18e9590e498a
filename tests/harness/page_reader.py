"""Somebody who follows a page: types its commands, runs its blocks of Python, and compares what is shown.

`headrace up` and `headrace jobs serve` run beside the rest until the page ends, `up` on ports and in a
directory of its own; a block of YAML is a file, whose name is in its first line. The addresses that pages
show are replaced by the real ones, and back in what is printed. Output is compared with what the page shows:
moments, ids, sizes and durations may differ, runs of spaces count as one, and `…` stands for anything.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Self
from unittest import mock

from docs.fenced import Block, reason_not_to_run
from harness.wait import run_to_end
from headrace.cli.main import run as run_command

BOOTSTRAPS = ("localhost:9092", "127.0.0.1:9092")  # as pages write them
REGISTRIES = ("localhost:9644", "127.0.0.1:9644")
FILE = re.compile(r"# (\w+\.(?:py|yml))\n")
METRICS = re.compile(r" metrics address=http://(\S+)/metrics")
PROGRAMS = ("curl", "jq")  # a command that needs one which is not installed is left out
COMMAND_TIMEOUT_S = 240.0
SHELL_CHARACTERS = frozenset("|<>&;$`*?~#\n")

LOOSE = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?"), "<moment>"),
    (re.compile(r"\b[A-Za-z0-9_-]{22}\b|\b(c|i|u|ad)-\d+\b"), "<id>"),  # of topics, or of the sample
    (re.compile(r"\b\d[\d.,]* ?(B|KiB|MiB|GiB|TiB|ms|s|min|MB/s)\b"), "<quantity>"),
    (re.compile(r"[ \t]+"), " "),
)


class Reader:
    """Reads in `place`, which becomes the working directory; `close` ends what it started."""

    def __init__(self, place: Path, prepare: Callable[[Reader], None] | None = None, **names: Any) -> None:
        """`prepare` is called when the page's broker serves, and makes what the page takes for granted."""
        self.place = place
        self._prepare = prepare
        self.bootstrap = ""
        self.registry = ""
        self._module = ModuleType("page")
        vars(self._module).update(names)
        self._up: subprocess.Popen[str] | None = None
        self._served: list[subprocess.Popen[str]] = []
        self._environment = dict(os.environ)
        programs = str(Path(sys.executable).parent)
        self._environment["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"
        self._environment["HOME"] = str(place)  # pages write there, such as to ~/.bashrc
        self._environment.pop("HEADRACE_BOOTSTRAP", None)
        self._before: tuple[str, list[str]] = ("", [])

    def __enter__(self) -> Self:
        self._before = os.getcwd(), list(sys.path)
        os.chdir(self.place)
        sys.path.insert(0, str(self.place))
        sys.modules["page"] = self._module  # dataclasses look for their own
        return self

    def __exit__(self, *_: object) -> None:
        for served in self._served:
            served.terminate()
            served.communicate(timeout=COMMAND_TIMEOUT_S)
        self.end_broker()
        os.chdir(self._before[0])
        sys.path[:] = self._before[1]
        sys.modules.pop("page", None)

    def meet(self, bootstrap: str, registry: str = "") -> None:
        """A broker that runs already; `registry` is host:port."""
        self.bootstrap, self.registry = bootstrap, registry
        self._environment["HEADRACE_BOOTSTRAP"] = bootstrap
        self._environment["HEADRACE_REGISTRY"] = f"http://{registry}"

    def follow(self, blocks: list[Block]) -> None:
        for block in blocks:
            if block.language == "python":
                self.python(block)
            elif block.language == "yaml":
                named = FILE.match(block.text)
                assert named is not None, f"{block.where}: the first line is `# name.yml`"
                (self.place / named[1]).write_text(block.text)
            else:
                for command, expected in block.commands():
                    if reason_not_to_run(command) is None:
                        self.command(block, command, expected)

    # --- Python ------------------------------------------------------------------------------------------

    def python(self, block: Block) -> None:
        text = self._real(block.text)
        if named := FILE.match(text):
            (self.place / named[1]).write_text(text)
            return
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                # as many lines as the page has above it: a traceback names the page's own line
                exec(compile("\n" * block.line + text, block.page, "exec"), vars(self._module))
        finally:
            print(f"--- {block.where}\n{printed.getvalue()}", flush=True)
        if block.expected is not None:
            self.compare(block, text, block.expected, printed.getvalue())

    def give(self, **names: Any) -> None:
        """Names that the page has by other means, such as the shell that it opens."""
        vars(self._module).update(names)

    # --- commands ----------------------------------------------------------------------------------------

    def command(self, block: Block, command: str, expected: str) -> None:
        if command.startswith("headrace up"):
            self.start_broker(block, command, expected)
            return
        if command.startswith("headrace jobs serve") and "--check" not in command:
            self.start_jobs(block, command, expected)
            return
        if any(re.search(rf"\b{name}\b", command) and not shutil.which(name) for name in PROGRAMS):
            return
        done = self.run(block, command)
        fails = "Error: " in expected
        printed = done.stdout + done.stderr if fails else done.stdout
        assert (done.returncode != 0) == fails, f"{block.where}: {command}: {done.returncode}\n{done.stderr}"
        if expected:
            self.compare(block, command, expected, printed)

    def run(self, block: Block, command: str) -> subprocess.CompletedProcess[str]:
        real = self._real(command)
        # a pipeline has a Spark of its own, which ends with its process
        is_short = real.startswith("headrace ") and not real.startswith("headrace pipeline ")
        if is_short and SHELL_CHARACTERS.isdisjoint(real):
            done = self._run_here(shlex.split(real)[1:])
        else:
            done = run_to_end(
                ["bash", "-o", "pipefail", "-c", real], COMMAND_TIMEOUT_S, env=self._environment
            )
        print(f"--- {block.where}\n$ {command}\n{done.stdout}{done.stderr}", flush=True)
        return done

    def _run_here(self, arguments: list[str]) -> subprocess.CompletedProcess[str]:
        """In this process: most of a command's time is the start of its own."""
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            mock.patch.dict(os.environ, self._environment, clear=True),
        ):
            code = run_command(arguments)
        texts = []
        for stream in (out, err):
            stream.flush()
            stream.seek(0)
            texts.append(stream.read())
        return subprocess.CompletedProcess(arguments, code, *texts)

    def start_broker(self, block: Block, command: str, expected: str) -> None:
        self.end_broker()
        words = command.partition("#")[0].split()[1:]
        with (self.place / "up.txt").open("w") as notes:
            self._up = subprocess.Popen(
                [Path(sys.executable).with_name("headrace"), *words, "--port", "0"],
                stdout=subprocess.PIPE,
                stderr=notes,
                text=True,
                env=self._environment,
            )
        assert self._up.stdout is not None
        line = self._up.stdout.readline()
        assert line.startswith("ready "), f"{block.where}: {command}: {(self.place / 'up.txt').read_text()}"
        log = (self.place / "headrace-data" / "node-1" / "node.log").read_text()
        self.meet(line.split()[1], METRICS.findall(log)[-1])
        if expected:
            self.compare(block, command, expected, line)
        if self._prepare is not None:
            self._prepare(self)

    def start_jobs(self, block: Block, command: str, expected: str) -> None:
        with (self.place / f"jobs-{len(self._served)}.txt").open("w") as notes:
            served = subprocess.Popen(
                [Path(sys.executable).with_name("headrace"), *command.partition("#")[0].split()[1:]],
                stdout=subprocess.PIPE,
                stderr=notes,
                text=True,
                env=self._environment,
            )
        self._served.append(served)
        assert served.stdout is not None
        line = served.stdout.readline()
        assert line.startswith("ready "), f"{block.where}: {command}: {Path(notes.name).read_text()}"
        if expected:
            self.compare(block, command, expected, line)

    def end_broker(self) -> None:
        if self._up is not None:
            self._up.terminate()
            self._up.communicate(timeout=COMMAND_TIMEOUT_S)
            self._up = None

    # --- what is shown -----------------------------------------------------------------------------------

    def _real(self, text: str) -> str:
        for shown, real in ((BOOTSTRAPS, self.bootstrap), (REGISTRIES, self.registry)):
            for address in shown:
                text = text.replace(address, real or address)
        return text

    def compare(self, block: Block, what: str, expected: str, printed: str) -> None:
        for shown, real in ((BOOTSTRAPS[1], self.bootstrap), (REGISTRIES[1], self.registry)):
            if real:
                printed = printed.replace(real, shown)
        assert _pattern(expected).fullmatch(_loose(printed)), (
            f"{block.where}: {what}\nthe page shows:\n{expected}\nprinted:\n{printed}"
        )


def _loose(text: str) -> str:
    lines = []
    for line in text.splitlines():
        for pattern, mask in LOOSE:
            line = pattern.sub(mask, line)
        lines.append(line.strip())
    return "\n".join(lines).strip("\n")


def _pattern(expected: str) -> re.Pattern[str]:
    """`…` is anything within a line, or any lines if it stands alone."""
    lines = []
    for line in _loose(expected).split("\n"):
        if line == "…":
            lines.append(r"(?:[^\n]*\n)*?[^\n]*")
        else:
            lines.append(r"[^\n]*".join(map(re.escape, line.split("…"))))
    return re.compile("\n".join(lines))
