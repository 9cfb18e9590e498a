"""The reference says what the code does: no page is stale, and a running broker shows nothing else.

The pages are made by `make docs`. Whether the generator itself tells the truth is asked of a real broker:
its ApiVersions, its DescribeConfigs, and its page of metrics.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from chaos.peer import Peer
from harness.headrace import Headrace
from harness.wait import eventually
from headrace.machines.configs.definition import KEPT_DOC
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
PAGES = [
    "README.md",
    "topic-configs.md",
    "broker-configs.md",
    "group-configs.md",
    "client-configs.md",
    "apis.md",
    "rights.md",
    "metrics.md",
]
TOPIC, BROKER, GROUP = 2, 4, 32


def load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_reference", ROOT / "tools" / "make_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    return load_generator()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    with Headrace(tmp_path_factory.mktemp("reference"), {"headrace.metrics.port": "0"}) as broker:
        yield broker


def first_column(name: str) -> set[str]:
    """What the rows of all tables of a page begin with."""
    page = (REFERENCE / name).read_text()
    return set(re.findall(r"^\| `?([\w.]+)`? \|", page, re.MULTILINE)) - {"Key", "Metric"}


@pytest.mark.parametrize("name", PAGES)
def test_page_is_what_the_code_says(generator: ModuleType, name: str) -> None:
    assert (REFERENCE / name).read_text() == generator.PAGES[name](), "run `make docs`"


def test_no_page_is_left_over(generator: ModuleType) -> None:
    assert {path.name for path in REFERENCE.iterdir()} == set(generator.PAGES) == set(PAGES)


def test_links_of_the_reference_lead_somewhere() -> None:
    for name in PAGES:
        for link in re.findall(r"\]\(([^)#:]+)\)", (REFERENCE / name).read_text()):
            assert (REFERENCE / link).exists(), f"{name}: {link}"


def described(broker: Headrace, kind: int, name: str) -> dict[str, str]:
    """Every setting that the broker describes, with its description."""
    with Peer(broker.port) as peer:
        asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        (result,) = peer.ask(DescribeConfigsRequest(resources=[asked], include_documentation=True), 4).results
        assert result.error_code == 0
        return {config.name: config.documentation for config in result.configs}


def test_every_broker_setting_is_in_the_reference(broker: Headrace) -> None:
    assert described(broker, BROKER, "1").keys() == first_column("broker-configs.md")


def test_every_topic_setting_is_in_the_reference(broker: Headrace) -> None:
    with Peer(broker.port) as peer:
        told = peer.ask(MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), 4)
        assert told.topics[0].error_code == 0
    page = (REFERENCE / "topic-configs.md").read_text()
    settings = described(broker, TOPIC, "orders")
    assert settings.keys() == first_column("topic-configs.md")
    assert all(documentation in page for documentation in settings.values())


def test_every_group_setting_is_in_the_reference(broker: Headrace) -> None:
    page = (REFERENCE / "group-configs.md").read_text()
    settings = described(broker, GROUP, "readers")
    assert settings.keys() == first_column("group-configs.md")
    assert all(text in page for text in settings.values() if text != KEPT_DOC)


def test_every_api_that_is_told_is_in_the_reference(broker: Headrace) -> None:
    with Peer(broker.port) as peer:
        request = ApiVersionsRequest(client_software_name="docs", client_software_version="1")
        told = peer.ask(request, 3)
    page = (REFERENCE / "apis.md").read_text().partition("## Between nodes")[0]
    rows = re.findall(r"^\| (\d+) \| \w+ \| (\d+)(?:–(\d+))? \|", page, re.MULTILINE)
    documented = {(int(key), int(low), int(high or low)) for key, low, high in rows}
    assert {(api.api_key, api.min_version, api.max_version) for api in told.api_keys} == documented


def test_every_metric_is_in_the_reference(broker: Headrace) -> None:
    address = re.compile(r"metrics address=\"?(http://[\w.:/]+)")
    eventually(lambda: address.search(broker.output()) is not None, True)
    found = address.search(broker.output())
    assert found is not None
    with urllib.request.urlopen(found[1], timeout=30) as answer:
        exposed = set(re.findall(r"^# HELP (\w+)", answer.read().decode(), re.MULTILINE))
    assert exposed == first_column("metrics.md")
