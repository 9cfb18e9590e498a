"""Small mistakes in the broker's code, chosen by a seed, and whether the tests notice each of them.

`python tools/mutants.py --mutants 40` (or `make mutants MUTANTS=40 SEED=…`) draws mutants over storage, node
and machines, weighted by lines of code. Each is tried in a copy of the tree: first the test files that import
the changed module, then those of the same folder, then seeds of every play of the simulator, then the other
unit and property tests. The first failure, or too long a run, kills the mutant, if the same tests pass
without it: tests that fail anyway are reported, left out from then on, and kill nothing. Survivors are
printed as diffs; those listed in tools/explained_mutants.txt with a reason are counted apart.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("storage", "node", "machines")
EXPLAINED = ROOT / "tools" / "explained_mutants.txt"
CACHE = ROOT / ".cache" / "mutants"
COPIED = (
    "src",
    "tests",
    "tools",
    "docs",
    "examples",
    "benchmarks",
    "pyproject.toml",
    "README.md",
    "Makefile",
)
PLAYS = ("logs", "coordinators", "clients")
FILES_PER_RUN = 40  # of tests, so that no run takes too long by itself
PYTEST = ("-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", "--timeout=300")

# Calls that only tell somebody what happened.
TELLING = frozenset(("report", "observe", "info", "warning", "debug"))
FLIPPED: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
SIMPLE = (ast.Assign, ast.AugAssign, ast.Expr, ast.Delete)


@dataclass(frozen=True)
class Mutant:
    path: str  # relative to the root
    line: int
    kind: str
    start: int  # of the replaced text in the file, in characters
    end: int
    text: str  # what comes there instead

    def applied(self, source: str) -> str:
        return source[: self.start] + self.text + source[self.end :]


@dataclass
class Verdict:
    mutant: Mutant
    diff: str
    killed_by: str = ""  # empty: it survived
    explained: str = ""
    seconds: float = 0.0
    stages: list[str] = field(default_factory=list)


# --- where code can be changed ------------------------------------------------------------------------------


class Sites(ast.NodeVisitor):
    """All mutants of one file that could make a difference."""

    def __init__(self, path: str, source: str) -> None:
        self._path = path
        self._source = source
        starts = [0]
        for line in source.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        self._starts = starts
        self._lines = source.splitlines()
        self._depth = 0  # of functions
        self.found: list[Mutant] = []
        self.visit(ast.parse(source))

    def _position(self, line: int, column: int) -> int:
        # columns count bytes of UTF-8
        text = self._lines[line - 1].encode()[:column].decode() if self._lines else ""
        return self._starts[line - 1] + len(text)

    def _span(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, ast.expr | ast.stmt)
        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
        return self._position(node.lineno, node.col_offset), self._position(end_line, end_column)

    def _add(self, node: ast.AST, kind: str, start: int, end: int, text: str) -> None:
        if self._depth and self._source[start:end] != text:
            assert isinstance(node, ast.expr | ast.stmt)
            self.found.append(Mutant(self._path, node.lineno, kind, start, end, text))

    # what is left alone: types, texts, slots, and constants of a module, which only tune

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name in ("__repr__", "__str__") or _is_abstract(node):
            return
        self._depth += 1
        for statement in node.body:
            self.visit(statement)
        self._swap_neighbours(node.body)
        self._depth -= 1

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Assert(self, node: ast.Assert) -> None:
        return

    def visit_Raise(self, node: ast.Raise) -> None:
        return

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        return

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self._negate(node.test)
        self._visit_block(node)

    def visit_While(self, node: ast.While) -> None:
        self._visit_block(node)

    def visit_For(self, node: ast.For) -> None:
        self._visit_block(node)

    def visit_With(self, node: ast.With) -> None:
        self._visit_block(node)

    def visit_Try(self, node: ast.Try) -> None:
        self._visit_block(node)

    def _visit_block(self, node: ast.AST) -> None:
        self.generic_visit(node)
        for name in ("body", "orelse", "finalbody"):
            self._swap_neighbours(getattr(node, name, []))

    # what is changed

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def _negate(self, test: ast.expr) -> None:
        start, end = self._span(test)
        text = self._source[start:end]
        self._add(test, "condition negated", start, end, f"not ({text})")

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1:
            start, end = self._span(node.left)[1], self._span(node.comparators[0])[0]
            between = self._source[start:end]
            if "(" not in between and ")" not in between and "\n" not in between:
                self._add(node, "comparison flipped", start, end, f" {FLIPPED[type(node.ops[0])]} ")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        start, end = self._span(node)
        other: ast.boolop = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        text = "(" + ast.unparse(ast.BoolOp(op=other, values=node.values)) + ")"
        self._add(node, "and/or exchanged", start, end, text)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            start, end = self._span(node)
            inner_start, inner_end = self._span(node.operand)
            self._add(node, "not left out", start, end, self._source[inner_start:inner_end])
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        start, end = self._span(node)
        if isinstance(node.value, bool):
            self._add(node, "boolean changed", start, end, str(not node.value))
        elif isinstance(node.value, int):
            self._add(node, "constant + 1", start, end, str(node.value + 1))
            if node.value:
                self._add(node, "constant - 1", start, end, str(node.value - 1))

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.Add | ast.Sub) and not isinstance(node.left, ast.Constant | ast.JoinedStr):
            start, end = self._span(node.left)[1], self._span(node.right)[0]
            if self._source[start:end].strip() in ("+", "-"):
                sign = " - " if isinstance(node.op, ast.Add) else " + "
                self._add(node, "sign changed", start, end, sign)
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant) or _is_telling(node):
            return
        if isinstance(node.value, ast.Call):
            start, end = self._span(node)
            self._add(node, "call left out", start, end, "pass")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            start, end = self._span(node)
            self._add(node, "returns None", start, end, "return None")
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        if "__slots__" not in names:
            self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        start, end = self._span(node)
        if "metrics" not in self._source[start:end]:
            if isinstance(node.op, ast.Add | ast.Sub):
                operator = "-=" if isinstance(node.op, ast.Add) else "+="
                before, after = self._span(node.target)[1], self._span(node.value)[0]
                self._add(node, "sign changed", before, after, f" {operator} ")
            self.generic_visit(node)

    def _swap_neighbours(self, body: list[ast.stmt]) -> None:
        for first, second in pairwise(body):
            if not isinstance(first, SIMPLE) or not isinstance(second, SIMPLE):
                continue
            if _is_text(first) or _is_telling(first) or _is_telling(second):
                continue
            if not _has_effect(first) or not _has_effect(second):
                continue  # two values that are only named do not care about their order
            (start, middle), (begin, end) = self._span(first), self._span(second)
            text = self._source[begin:end] + self._source[middle:begin] + self._source[start:middle]
            self._add(first, "statements swapped", start, end, text)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_telling(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return False
    called = node.value.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name in TELLING


def _has_effect(node: ast.stmt) -> bool:
    """Whether somebody else may see it: a call, or an assignment to an attribute or an item."""
    if isinstance(node, ast.Expr | ast.Delete):
        return True
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]  # type: ignore[attr-defined]
    calls = any(isinstance(inner, ast.Call) for inner in ast.walk(node))
    return calls and not all(isinstance(target, ast.Name) for target in targets)


def _is_abstract(node: ast.FunctionDef) -> bool:
    last = node.body[-1]
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Constant) and last.value.value is ...:
        return True
    return len(node.body) <= 2 and isinstance(last, ast.Raise)


def candidates(root: Path) -> dict[str, tuple[int, list[Mutant]]]:
    """Of each file: its lines of code, and what can be changed in it."""
    found = {}
    for package in PACKAGES:
        for file in sorted((root / "src" / "headrace" / package).rglob("*.py")):
            if file.name == "__init__.py" or file.name.endswith("_keys.py"):
                continue
            source = file.read_text()
            path = file.relative_to(root).as_posix()
            lines = sum(
                1 for line in source.splitlines() if line.strip() and not line.strip().startswith("#")
            )
            mutants = Sites(path, source).found
            if mutants:
                found[path] = (lines, mutants)
    return found


def draw(count: int, dice: random.Random, root: Path = ROOT) -> list[Mutant]:
    """Files by their size, then any line that can be changed, then any change of it; none twice."""
    files = candidates(root)
    names = sorted(files)
    weights = [files[name][0] for name in names]
    drawn: dict[Mutant, None] = {}
    while len(drawn) < count:
        (name,) = dice.choices(names, weights)
        mutants = files[name][1]
        line = dice.choice(sorted({mutant.line for mutant in mutants}))
        mutant = dice.choice([one for one in mutants if one.line == line])
        source = (root / name).read_text()
        try:
            ast.parse(mutant.applied(source))
        except SyntaxError:
            continue
        drawn[mutant] = None
    return list(drawn)


# --- the tests that are asked -------------------------------------------------------------------------------


def stages(mutant: Mutant, root: Path, tests: list[Path]) -> Iterator[tuple[str, list[str]]]:
    """Test files in the order in which they are likely to notice."""
    parts = Path(mutant.path).relative_to("src/headrace").with_suffix("").parts
    module = ".".join(("headrace", *parts))
    patterns = (
        re.compile(rf"(from|import) {re.escape(module)}\b"),
        re.compile(rf"from {re.escape(module.rpartition('.')[0])} import [^#]*\b{re.escape(parts[-1])}\b"),
    )
    near, folder, package, rest = [], [], [], []
    for file in tests:
        text = (root / file).read_text()
        name = file.as_posix()
        if any(pattern.search(text) for pattern in patterns) or parts[-1] in file.stem:
            near.append(name)
        elif all(part in file.parts for part in parts[:-1]):
            folder.append(name)
        elif parts[0] in file.parts:
            package.append(name)
        else:
            rest.append(name)
    broker = [name for name in rest if not re.search(r"/(client|cli|spark|sample|schemas)", name)]
    yield "tests of the module", near
    yield "tests of its folder", folder
    yield "tests of its package", package
    yield "other tests of the broker", broker
    yield "the rest of make unit", [name for name in rest if name not in broker]


@dataclass(frozen=True)
class Run:
    """Some tests that are asked about a mutant, or some seeds of the simulator."""

    name: str
    arguments: tuple[str, ...]
    files: tuple[str, ...] = ()  # of tests

    def without(self, failing: Collection[str]) -> list[str]:
        """The arguments that leave out what fails anyway."""
        files = [file for file in self.files if file not in failing]
        inside = [test for test in sorted(failing) if test.partition("::")[0] in files]
        return [*self.arguments, *(argument for test in inside for argument in ("--deselect", test)), *files]

    @property
    def key(self) -> str:
        return f"{self.name}, {self.files[0]} to {self.files[-1]}" if self.files else self.name

    def is_left_out(self, failing: Collection[str]) -> bool:
        return self.key in failing or (bool(self.files) and all(file in failing for file in self.files))


@dataclass(frozen=True)
class Outcome:
    is_fine: bool
    said: str  # its last words
    test: str = ""  # the test that failed, or the file that cannot be collected, if it said so


class Baseline:
    """What fails without any mutant, found out as soon as it seems to have killed one."""

    def __init__(self, failing: Iterable[str] = ()) -> None:
        self.failing: dict[str, str] = dict.fromkeys(failing, "left out on the command line")
        self._passing: set[tuple[str, ...]] = set()

    def explains(self, run: Run, outcome: Outcome, left_out: Collection[str], tree: Runs, cpu_s: int) -> bool:
        """Whether it fails in the same place in this tree, which has no mutant. Left out: what it skipped."""
        if outcome.test in left_out:
            return False  # it was not even asked: the mutant breaks more than this test
        if outcome.test in self.failing:
            return True  # another worker has found out meanwhile
        arguments = [*PYTEST, outcome.test] if outcome.test else run.without(left_out)
        if tuple(arguments) in self._passing:
            return False
        alone = tree.run(arguments, cpu_s)
        if alone.is_fine:
            self._passing.add(tuple(arguments))
            return False
        culprit = outcome.test or alone.test or run.key
        if culprit not in self.failing:  # else another worker has found out meanwhile
            self.failing[culprit] = alone.said
            print(f"fails without a mutant, and is left out: {culprit}: {alone.said}", flush=True)
        return True


class Runs(Protocol):
    def run(self, arguments: list[str], cpu_s: int) -> Outcome: ...


class Tree:
    """A copy of the project in which one mutant at a time lives."""

    def __init__(self, number: int) -> None:
        self.path = CACHE / f"tree-{number}"
        self._stamp = int(time.time())
        self.path.mkdir(parents=True, exist_ok=True)
        for name in COPIED:
            source, target = ROOT / name, self.path / name
            if source.is_dir():
                shutil.rmtree(target, ignore_errors=True)
                shutil.copytree(source, target, ignore=shutil.ignore_patterns(".cache", "node_modules"))
            elif source.exists():
                shutil.copy2(source, target)

    def read(self, path: str) -> str:
        return (self.path / path).read_text()

    def write(self, path: str, text: str) -> None:
        """With a time of its own: what was compiled before must not be taken for it."""
        file = self.path / path
        file.write_text(text)
        self._stamp += 2
        os.utime(file, (self._stamp, self._stamp))

    def run(self, arguments: list[str], cpu_s: int) -> Outcome:
        """A run that computes for too long fails; the machine may have other work, so that time which passes
        without computing counts a tenth.
        """

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 5))

        # with CI set, hypothesis draws the same examples each time: a mutant is not killed by chance
        environment = os.environ | {"PYTHONPATH": str(self.path / "src"), "CI": "1"}
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self.path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=limit,
        )
        try:
            output, _ = process.communicate(timeout=cpu_s * 10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its own session: this run and its children
            process.communicate()
            return Outcome(False, "timeout")
        if process.returncode == -signal.SIGXCPU:
            return Outcome(False, f"more than {cpu_s} s of computing")
        return outcome_of(process.returncode, output)


def outcome_of(code: int, output: str) -> Outcome:
    lines = output.strip().splitlines()
    said = [line for line in lines if line.startswith(("FAILED", "ERROR", "E  "))]
    named = [
        match[1] for line in lines if (match := re.match(r"(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", line))
    ]
    last = (said or lines or ["nothing was said"])[-1][:200]
    return Outcome(code in (0, 5), last, named[-1] if named else "")


def judge(
    mutant: Mutant, tree: Tree, tests: list[Path], options: argparse.Namespace, baseline: Baseline
) -> Verdict:
    source = tree.read(mutant.path)
    changed = mutant.applied(source)
    diff = "".join(
        difflib.unified_diff(
            source.splitlines(keepends=True),
            changed.splitlines(keepends=True),
            mutant.path,
            f"{mutant.path} ({mutant.kind})",
            n=2,
        )
    )
    verdict = Verdict(mutant, diff)
    began = time.monotonic()
    tree.write(mutant.path, changed)
    try:
        for run in _runs(mutant, tree, tests, options):
            while not run.is_left_out(baseline.failing):
                left_out = frozenset(baseline.failing)
                outcome = tree.run(run.without(left_out), options.cpu_seconds)
                if outcome.is_fine:
                    break
                tree.write(mutant.path, source)
                if not baseline.explains(run, outcome, left_out, tree, options.cpu_seconds):
                    verdict.killed_by = f"{run.name}: {outcome.said}"
                    break
                tree.write(mutant.path, changed)
            verdict.stages.append(run.name)
            if verdict.killed_by:
                break
    finally:
        tree.write(mutant.path, source)
    verdict.seconds = round(time.monotonic() - began, 1)
    return verdict


def _runs(mutant: Mutant, tree: Tree, tests: list[Path], options: argparse.Namespace) -> Iterator[Run]:
    """The simulator's turn comes early: some seconds of it notice more than minutes of distant tests."""
    near, folder, *distant = stages(mutant, tree.path, tests)
    for name, files in (near, folder):
        yield from _portions(name, files)
    for play in PLAYS:
        if options.seeds:
            seeds = ("--seeds", f"1..{options.seeds}")
            yield Run(f"simulator, {play}", ("-m", "headrace.simulator", *seeds, "--play", play))
    for name, files in distant:
        yield from _portions(name, files)


def _portions(name: str, files: list[str]) -> Iterator[Run]:
    for portion in batched(files, FILES_PER_RUN):
        yield Run(name, PYTEST, portion)


def batched(files: list[str], size: int) -> Iterator[tuple[str, ...]]:
    for start in range(0, len(files), size):
        yield tuple(files[start : start + size])


# --- the report ---------------------------------------------------------------------------------------------


def explained() -> dict[tuple[str, str, str], str]:
    """By file, removed lines and added lines: why no test can tell such a mutant from the original."""
    known = {}
    if EXPLAINED.exists():
        for block in EXPLAINED.read_text().split("\n\n"):
            lines = [line for line in block.splitlines() if line and not line.startswith("#")]
            if not lines:
                continue
            path = lines[0].strip()
            removed = " ".join(line[1:].strip() for line in lines if line.startswith("-"))
            added = " ".join(line[1:].strip() for line in lines if line.startswith("+"))
            known[path, removed, added] = " ".join(
                line.removeprefix("why:").strip() for line in lines[1:] if not line.startswith(("-", "+"))
            )
    return known


def _key(verdict: Verdict) -> tuple[str, str, str]:
    lines = verdict.diff.splitlines()[2:]
    removed = " ".join(line[1:].strip() for line in lines if line.startswith("-"))
    added = " ".join(line[1:].strip() for line in lines if line.startswith("+"))
    return verdict.mutant.path, removed, added


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--mutants", type=int, default=40)
    parser.add_argument("--seed", type=int, default=None, help="a fresh one by default")
    parser.add_argument("--seeds", type=int, default=8, help="of the simulator, of each play")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cpu-seconds", type=int, default=300, help="of each run of tests, before it ends")
    parser.add_argument("--skip", action="append", default=[], help="a test that is not to be asked")
    parser.add_argument("--list", action="store_true", help="only say which mutants are drawn")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1_000_000)
    # the trees come first: whoever edits this one meanwhile disturbs nobody
    made = [Tree(number) for number in range(0 if options.list else options.workers)]
    root = made[0].path if made else ROOT
    mutants = draw(options.mutants, random.Random(seed), root)
    print(f"seed {seed}: {len(mutants)} mutants", flush=True)
    if options.list:
        for mutant in mutants:
            print(f"{mutant.path}:{mutant.line} {mutant.kind}")
        return 0
    # unit tests come first: they are quicker, and what they say is easier to understand
    tests = [
        file.relative_to(root)
        for folder in ("tests/unit", "tests/property")
        for file in sorted((root / folder).rglob("test_*.py"))
    ]
    trees: SimpleQueue[Tree] = SimpleQueue()
    for tree in made:
        trees.put(tree)
    reasons = explained()
    baseline = Baseline(options.skip)

    def attend(mutant: Mutant) -> Verdict:
        tree = trees.get()
        try:
            verdict = judge(mutant, tree, tests, options, baseline)
        finally:
            trees.put(tree)
        if not verdict.killed_by:
            verdict.explained = reasons.get(_key(verdict), "")
        fate = f"killed by {verdict.killed_by}" if verdict.killed_by else "SURVIVED"
        if verdict.explained:
            fate = f"equivalent: {verdict.explained}"
        print(f"{mutant.path}:{mutant.line} {mutant.kind}: {fate} ({verdict.seconds} s)", flush=True)
        return verdict

    with ThreadPoolExecutor(options.workers) as pool:
        verdicts = list(pool.map(attend, mutants))
    return _tell(seed, verdicts, baseline.failing)


def _tell(seed: int, verdicts: list[Verdict], failing: dict[str, str]) -> int:
    counted = [verdict for verdict in verdicts if not verdict.explained]
    survivors = [verdict for verdict in counted if not verdict.killed_by]
    killed = len(counted) - len(survivors)
    rate = killed / len(counted) if counted else 1.0
    for verdict in survivors:
        print(f"\nsurvived:\n{verdict.diff}", end="")
    for name, said in failing.items():
        print(f"\nfails without a mutant, and was left out: {name}: {said}")
    print(
        f"\nseed {seed}: {killed} of {len(counted)} mutants killed, {rate:.0%}; "
        f"{len(verdicts) - len(counted)} explained"
    )
    CACHE.mkdir(parents=True, exist_ok=True)
    report = {
        "seed": seed,
        "rate": rate,
        "failing_without": failing,
        "verdicts": [asdict(verdict) for verdict in verdicts],
    }
    (CACHE / f"seed-{seed}.json").write_text(json.dumps(report, indent=1))
    return 0 if rate >= 0.9 else 1


if __name__ == "__main__":
    sys.exit(main())
