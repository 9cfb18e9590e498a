"""Files and modules that a docstring, a comment or a page names exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = sorted(path.name for path in (ROOT / "src" / "headrace").iterdir() if path.is_dir())
# such as `node/partitions.py`, or `storage/checkpoints` without its ending
FILE = re.compile(
    rf"(?<![\w/.\-])((?:{'|'.join(PACKAGES)}|src|tests|tools|docs|examples|benchmarks|harness)/[\w/\-]+(?:\.\w+)?)(?![\w/])"
)
MODULE = re.compile(r"\b(headrace(?:\.[a-z_]\w*)+)\b")
LITERAL = re.compile(r"[\"'/](headrace(?:\.[a-z_]+)+\.?)[\"']")
FIELD = re.compile(r"\b(headrace_[a-z_]+)\b")  # a setting is also the field of a class
CODE = re.compile(r"`([^`\n]+)`")
DATA = (".jsonl", ".csv")  # of an example that the reader has
BASES = ("", "src/headrace", "tests", "src")


def named_files(text: str) -> list[str]:
    """In backticks, or plain with an ending."""
    in_code = [name for code in CODE.findall(text) for name in FILE.findall(code)]
    plain = [name for name in FILE.findall(text) if "." in name.rpartition("/")[2]]
    return sorted(name for name in {*in_code, *plain} if not name.endswith(DATA))


@cache
def file_exists(name: str, beside: Path) -> bool:
    places = [*(ROOT / base for base in BASES), beside.parent]
    return any((place / name).exists() or (place / f"{name}.py").exists() for place in places)


@cache
def literals() -> frozenset[str]:
    """Dotted strings of the code: settings, headers, loggers and files of our own begin with `headrace.`"""
    found: set[str] = set()
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text()
        found.update(LITERAL.findall(text))
        found.update(name.replace("_", ".") for name in FIELD.findall(text))
    return frozenset(found)


@cache
def name_exists(name: str) -> bool:
    """A setting, a module, or something in one."""
    if name in literals() or f"{name.rpartition('.')[0]}." in literals():
        return True
    words = name.split(".")
    for count in range(len(words), 0, -1):
        module = ".".join(words[:count])
        try:
            found = find_spec(module)
        except ModuleNotFoundError:
            continue
        if found is not None:
            if count == len(words):
                return True
            text = Path(found.origin).read_text() if found.origin else ""
            return re.search(rf"\b{words[count]}\b", text) is not None
    return False


def python_texts(path: Path) -> list[tuple[int, str]]:
    """Docstrings and comments, with their lines."""
    source = path.read_text()
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node, clean=False)
            if text:
                found.append((node.body[0].lineno, text))
    for number, line in enumerate(source.splitlines(), 1):
        _, sign, comment = line.partition("# ")
        if sign:
            found.append((number, comment))
    return found


def unresolved(path: Path, text: str) -> list[str]:
    if "/" not in text and "headrace." not in text:
        return []
    wrong = [name for name in named_files(text) if not file_exists(name, path)]
    return wrong + [name for name in sorted(set(MODULE.findall(text))) if not name_exists(name)]


def test_names_in_pages_resolve() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    pages += (ROOT / "tests").glob("*.md")
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted(pages)
        if path.name != "CHANGELOG.md"  # tells what was there at its time
        for name in unresolved(path, path.read_text())
    ]
    assert not wrong, "\n".join(wrong)


def test_names_in_docstrings_and_comments_resolve() -> None:
    wrong = []
    for folder in ("src", "tests", "benchmarks", "tools", "examples"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for line, text in python_texts(path):
                wrong += [f"{path.relative_to(ROOT)}:{line}: {name}" for name in unresolved(path, text)]
    assert not wrong, "\n".join(wrong)
