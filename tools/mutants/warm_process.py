"""A process that has imported all tests once, and tries each mutant in a child that it forks.

`python -m mutants.warm_process ORDERS ANSWERS FILE…` reads orders from one file descriptor and writes answers
to another, a line of JSON each. In the child the changed functions get their new code while the program runs,
which takes a moment where a new process would import and collect for seconds. What was computed while modules
were imported stays as it was: mutants of such lines need a process of their own.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import select
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

Order = dict[str, Any]
Answer = dict[str, Any]
Place = tuple[str, str, int]  # file, qualified name, first line


class Unable(Exception):
    """The change cannot be made in a running program."""


class Warm:
    """Collects, then serves orders in place of the run of tests."""

    def __init__(self, orders: int, answers: int) -> None:
        self._orders = orders
        self._answers = answers
        self._failed = ""  # by whom, and why
        self._test = ""

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        functions: dict[Place, list[FunctionType]] = defaultdict(list)
        for each in gc.get_objects():
            if type(each) is FunctionType:
                functions[place_of(each.__code__)].append(each)
        items: dict[str, list[pytest.Item]] = defaultdict(list)  # by test and by file
        for item in session.items:
            items[item.nodeid].append(item)
            items[item.nodeid.partition("::")[0]].append(item)
        os.write(self._answers, b"ready\n")
        with os.fdopen(self._orders) as orders:
            for line in orders:
                order = json.loads(line)
                answer = self._forked(order, items, functions)
                os.write(self._answers, json.dumps(answer).encode() + b"\n")
        return True

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self._test:
            self._test = report.nodeid
            said = [line for line in report.longreprtext.splitlines() if line.startswith("E  ")]
            self._failed = f"FAILED {report.nodeid} - {said[-1][1:].strip() if said else ''}"[:200]

    def _forked(
        self, order: Order, items: dict[str, list[pytest.Item]], functions: dict[Place, list[FunctionType]]
    ) -> Answer:
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.setsid()
            try:
                answer = self._try(order, items, functions)
            except Unable as error:
                answer = {"unable": str(error)}
            except BaseException as error:
                answer = {"is_fine": False, "said": f"{type(error).__name__}: {error}"[:200], "test": ""}
            os.write(writing, json.dumps(answer).encode())
            os._exit(0)
        os.close(writing)
        watched = os.pidfd_open(child)
        is_over, _, _ = select.select([watched], [], [], order["cpu_s"] * 10)
        os.close(watched)
        try:
            os.killpg(child, signal.SIGKILL)  # its own session: the child, and what it has started
        except ProcessLookupError:
            pass
        _, status = os.waitpid(child, 0)
        with os.fdopen(reading, "rb") as answers:
            told = answers.read()
        if told:
            answer = json.loads(told)
        elif not is_over:
            answer = {"is_fine": False, "said": "timeout", "test": ""}
        elif os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
            answer = {"is_fine": False, "said": f"more than {order['cpu_s']} s of computing", "test": ""}
        else:
            answer = {"is_fine": False, "said": "the process ended", "test": ""}
        return answer

    def _try(
        self, order: Order, items: dict[str, list[pytest.Item]], functions: dict[Place, list[FunctionType]]
    ) -> Answer:
        if order["change"]:
            file, before, after = order["change"]
            put_in(file, before, after, functions)
        left_out = set(order["left_out"])
        chosen = [
            item
            for name in order["tests"]
            for item in items[name]
            if item.nodeid not in left_out and item.nodeid.partition("::")[0] not in left_out
        ]
        if not chosen and order["tests"]:
            raise Unable("none of these tests is known")
        resource.setrlimit(resource.RLIMIT_CPU, (order["cpu_s"], order["cpu_s"] + 5))
        for place, item in enumerate(chosen):
            following = chosen[place + 1] if place + 1 < len(chosen) else None
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._test:
                return {"is_fine": False, "said": self._failed, "test": self._test}
        return {"is_fine": True, "said": f"{len(chosen)} passed", "test": ""}


def place_of(code: CodeType) -> Place:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def put_in(file: str, before: str, after: str, functions: dict[Place, list[FunctionType]]) -> None:
    """All functions of the file whose code differs get the new one."""
    old, new = (list(codes(compile(source, file, "exec"))) for source in (before, after))
    if [code.co_qualname for code in old] != [code.co_qualname for code in new]:
        raise Unable("other functions than before")
    has_changed = False
    for was, becomes in zip(old[1:], new[1:], strict=True):
        if was == becomes:
            continue
        for function in functions.get(place_of(was), ()):
            try:
                function.__code__ = becomes
            except ValueError as error:  # another number of variables of an outer function
                raise Unable(str(error)) from error
            has_changed = True
    if not has_changed:
        raise Unable("no such function was found")


def codes(code: CodeType) -> Iterator[CodeType]:
    """This one, and those of all functions and classes inside."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def main() -> int:
    orders, answers, *files = sys.argv[1:]
    options = ("-q", "--no-header", "-p", "no:cacheprovider", "--timeout=300")
    existing = [file for file in files if Path(file).exists()]
    return int(pytest.main([*options, *existing], plugins=[Warm(int(orders), int(answers))]))


if __name__ == "__main__":
    sys.exit(main())
