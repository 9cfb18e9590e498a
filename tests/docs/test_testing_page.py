"""docs/testing.md says what happens: its blocks of Python are run, its tables name what there is."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from docs.fenced import to_run
from headrace.testing import Broker, Cluster, Faults
from testing.inner_runs import quickened

pytest_plugins = ["pytester"]

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "testing.md").read_text()
BLOCKS = to_run("docs/testing.md")


@pytest.fixture
def run(
    pytester: pytest.Pytester, headrace_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> pytest.Pytester:
    return quickened(pytester, headrace_broker, monkeypatch)


def test_every_block_runs(run: pytest.Pytester) -> None:
    tests = 0
    for number, block in enumerate(BLOCKS):
        assert block.language == "python"
        tests += len(re.findall(r"^ *def test_", block.text, re.MULTILINE))
        run.makepyfile(**{f"test_block_{number}": block.text})
    assert tests > 10
    result = run.runpytest_inprocess("--import-mode=importlib")
    result.assert_outcomes(passed=tests)


def test_the_settings_of_the_page_are_taken(run: pytest.Pytester) -> None:
    (ini,) = re.findall(r"^```ini\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    run.makeini(ini)
    run.makepyfile(
        """
        def test_settings(headrace_broker):
            assert headrace_broker.settings["auto.create.topics.enable"] == "false"
            assert headrace_broker.settings["num.partitions"] == "3"
        """
    )
    run.runpytest_inprocess().assert_outcomes(passed=1)


def public_names(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


def test_every_fault_is_on_the_page() -> None:
    section = PAGE.partition("## Faults")[2].partition("\n## ")[0]
    assert {name for name in public_names(Faults) if name not in section} == set()


def test_everything_a_broker_does_is_on_the_page() -> None:
    named = set(re.findall(r"\w+", PAGE))
    inner = {"is_started"}
    assert public_names(Broker) - named - inner == set()


def test_everything_a_cluster_does_is_on_the_page() -> None:
    section = PAGE.partition("## Clusters")[2].partition("\n## ")[0]
    named = set(re.findall(r"\w+", section))
    assert public_names(Cluster) - named - {"is_started"} == set()


@pytest.mark.parametrize("kind", [Broker, Cluster])
def test_every_option_is_on_the_page(kind: type) -> None:
    options = inspect.signature(kind).parameters
    assert {option for option in options if f"`{option}`" not in PAGE} == set()
