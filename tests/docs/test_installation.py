"""What is installed is what is imported: extras, pins and the commands that pages and errors show."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from headrace.base.extras import EXTRAS, install_command

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "headrace"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BASE = {canonicalize_name(Requirement(text).name) for text in PROJECT["dependencies"]}
CONTENT = {
    extra: {canonicalize_name(Requirement(text).name) for text in texts}
    for extra, texts in PROJECT["optional-dependencies"].items()
}

# module → distribution, where the names differ
DISTRIBUTIONS = {"google": "protobuf", "jwt": "pyjwt", "re2": "google-re2", "yaml": "pyyaml"}

# package → the extras that its optional parts need; every other package needs none
EXTRAS_OF = {
    "cli": {"lake", "spark"},
    "client": {"arrow"},
    "jobs": {"spark"},
    "lake": {"lake"},
    "machines": {"oauth"},
    "pipelines": {"spark"},
    "schemas": {"schemas", "arrow"},
    "spark": {"spark"},
    "testing": {"arrow"},
}

# package → what its users have already when they use that part: their own models, their test runner
USERS_OWN = {"client": {"msgspec"}, "testing": {"pytest"}}

# what an extra holds although Headrace imports it nowhere
OF_OTHERS = {"spark": {"pandas"}}  # PySpark's own way from Arrow to Python needs it

COMPILED_WITH = {"cython"}  # only the compiler reads it


def imported(package: str) -> set[str]:
    """Distributions that the modules of a package import when they run."""
    found: set[str] = set()
    for path in sorted((SOURCE / package).rglob("*.py")):
        for node in _running(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                found.add(node.module.partition(".")[0])
    outside = found - set(sys.stdlib_module_names) - {"headrace"} - COMPILED_WITH
    return {canonicalize_name(DISTRIBUTIONS.get(module, module)) for module in outside}


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those of blocks that only type checkers read."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            continue
        yield child
        yield from _running(child)


PACKAGES = sorted(path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists())


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_what_its_extras_hold(package: str) -> None:
    held = BASE | USERS_OWN.get(package, set())
    for extra in EXTRAS_OF.get(package, set()):
        held |= CONTENT[extra]
    assert imported(package) - held == set()


def test_spark_holds_every_format() -> None:
    """A source reads JSON, Avro and Protobuf by `headrace.schemas`, and hands Spark Arrow."""
    assert imported("spark") | imported("schemas") <= BASE | CONTENT["spark"]
    assert CONTENT["schemas"] | CONTENT["arrow"] <= CONTENT["spark"]


@pytest.mark.parametrize("extra", sorted(CONTENT))
def test_an_extra_holds_nothing_that_nobody_imports(extra: str) -> None:
    users = [package for package, extras in EXTRAS_OF.items() if extra in extras]
    if extra == "spark":
        users.append("schemas")
    used = set().union(*(imported(package) for package in users), OF_OTHERS.get(extra, set()))
    assert CONTENT[extra] - used == set()


def test_errors_know_which_extra_brings_a_library() -> None:
    for module, extra in EXTRAS.items():
        distribution = DISTRIBUTIONS.get(module.partition(".")[0], module)
        assert canonicalize_name(distribution) in CONTENT[extra]
    assert set(EXTRAS.values()) == set(CONTENT)


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt", "requirements-spark.txt"])
def test_pins_are_allowed_by_the_project(name: str) -> None:
    """What the tests run with is what a user may get."""
    wanted: dict[str, list[Requirement]] = {}
    for text in [
        *PROJECT["dependencies"],
        *(text for all in PROJECT["optional-dependencies"].values() for text in all),
    ]:
        requirement = Requirement(text)
        wanted.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    pinned = 0
    for line in (ROOT / name).read_text().splitlines():
        pin = re.fullmatch(r"([\w.-]+)(?:\[[\w,]+\])?==(\S+)", line.strip())
        if pin is None:
            continue
        pinned += 1
        for requirement in wanted.get(canonicalize_name(pin[1]), []):
            assert requirement.specifier.contains(pin[2], prereleases=True), f"{line}: {requirement}"
    assert pinned > 2


def pages() -> list[Path]:
    readable = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    readable += sorted((ROOT / "examples").rglob("*.md")) + sorted((ROOT / "examples").rglob("*.py"))
    return readable + sorted(SOURCE.rglob("*.py"))


def test_headrace_is_installed_from_a_clone() -> None:
    """Wheels are not published yet: an index that is asked for `headrace` has nothing, or another's."""
    wrong = []
    for page in pages():
        text = page.read_text()
        wrong += [(page.name, found) for found in re.findall(r"pip install[^\n`]*\bheadrace\b[^\n`]*", text)]
        if page.suffix == ".md":
            wrong += [(page.name, found) for found in re.findall(r"\bheadrace\[[\w,]+\]", text)]
        for extras in re.findall(r"pip install[^\n`]*\.\[([\w,]+)\]", text):
            assert set(extras.split(",")) <= set(CONTENT), page.name
            assert f'".[{extras}]"' in text, (
                f"{page.name}: in quotes, since shells take brackets for a pattern"
            )
    assert wrong == []


def test_errors_and_pages_show_the_same_command() -> None:
    assert install_command() == "pip install ."
    assert f"$ {install_command()}\n" in (ROOT / "README.md").read_text()
    assert f"$ {install_command('spark')}\n" in (ROOT / "README.md").read_text()
