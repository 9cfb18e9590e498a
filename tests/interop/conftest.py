"""Two brokers side by side: Kafka 4.3.1, which says what is right, and the one under test.

`--broker=kafka` puts a second Kafka in Headrace's place: that run judges the tests themselves, since whatever
two Kafkas answer differently must be normalised away before it can count against Headrace.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.broker import CACHE, Broker
from harness.fetching import alone
from harness.kafka import Kafka
from harness.quick_coordinators import QUICK_COORDINATORS
from interop.java_tools import JavaTools, Run

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def brokers(
    new_broker: Callable[..., Broker], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Broker, Broker]]:
    """(the oracle, the broker under test), both running."""
    oracle = Kafka(tmp_path_factory.mktemp("oracle"), QUICK_COORDINATORS)
    tested = new_broker(QUICK_COORDINATORS)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda broker: broker.start(), (oracle, tested)))
    yield oracle, tested
    oracle.kill()
    assert tested.is_running, f"the broker died under the tests:\n{tested.output()[-4000:]}"
    tested.stop()


@pytest.fixture(scope="session")
def tools() -> Iterator[JavaTools]:
    with JavaTools() as running:
        yield running


@pytest.fixture(scope="session")
def run(tools: JavaTools) -> Run:
    return Run(tools)


@pytest.fixture(scope="session")
def franz() -> Path:
    """Our stories in Go (go/*.go) as one binary."""
    binary = CACHE / "go" / "franz"
    environment = os.environ | {"GOMODCACHE": str(CACHE / "go" / "modules"), "GOFLAGS": "-modcacherw"}
    build = ["go", "build", "-o", str(binary), "."]
    with alone():
        subprocess.run(build, check=True, timeout=600, cwd=HERE / "go", env=environment)
    return binary


@pytest.fixture(scope="session")
def modules() -> Path:
    """node_modules of the pinned versions, fetched once."""
    place = CACHE / "js"
    with alone():
        stamp = place / "package.json"
        if not stamp.exists() or stamp.read_text() != (HERE / "js" / "package.json").read_text():
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy(HERE / "js" / ".npmrc", place)
            (place / "package.json").unlink(missing_ok=True)
            install = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(place)]
            wanted = json.loads((HERE / "js" / "package.json").read_text())["dependencies"]
            subprocess.run([*install, *(f"{n}@{v}" for n, v in wanted.items())], check=True, timeout=300)
            shutil.copy(HERE / "js" / "package.json", place)
    return place / "node_modules"


_numbers = itertools.count()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name nobody else uses, the same on both brokers."""
    return f"{request.function.__name__.removeprefix('test_')}-{next(_numbers)}"
