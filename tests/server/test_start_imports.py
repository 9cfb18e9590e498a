"""What a start loads before it is ready: half of the time of a start is imports (T8 in docs/benchmarks.md).

The registry, its formats, HTTP's names, codecs of archives and the like are loaded by those who need them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

IMPORTED = re.compile(r"^import time:.*\| +(\S+)$", re.MULTILINE)
SETTINGS = """\
node.id=1
listeners=PLAINTEXT://127.0.0.1:0
log.dirs={data}
headrace.metrics.port=0
"""


def imported_until_ready(words: list[str], directory: Path) -> set[str]:
    """The modules that this program has loaded when it prints `ready`."""
    log = directory / "imports.txt"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-X", "importtime", "-m", *words], stdout=subprocess.PIPE, stderr=stderr
        )
    assert process.stdout is not None
    with process.stdout:
        ready = process.stdout.readline()
        found = set(IMPORTED.findall(log.read_text()))
        process.terminate()
        process.wait()
    assert ready.startswith(b"ready "), log.read_text()
    return found


def among(found: set[str], unwanted: set[str]) -> list[str]:
    return sorted(name for name in found if any(f"{name}.".startswith(f"{one}.") for one in unwanted))


def test_a_node_with_registry_and_metrics_loads_neither_their_code_nor_http(tmp_path: Path) -> None:
    settings = tmp_path / "server.properties"
    settings.write_text(SETTINGS.format(data=tmp_path / "data"))
    found = imported_until_ready(["headrace.server", str(settings)], tmp_path)
    assert "headrace.node.node" in found
    unwanted = {
        *("headrace.schema_formats", "headrace.machines.schema_registry", "headrace.server.registry"),
        *("headrace.server.registry_rest", "headrace.server.schema_worker", "headrace.server.worker"),
        *("headrace.client", "headrace.cli", "headrace.node.handlers", "headrace.node.express"),
        *("h11", "headrace.node.http_clients", "headrace.machines.http.connection"),
        *("http", "urllib", "email", "multiprocessing", "ctypes", "encodings.idna", "getopt", "argparse"),
        *("pathlib", "shutil", "tempfile", "random", "secrets", "uuid", "decimal", "fractions", "tomllib"),
        *("click", "rich", "fastavro", "google", "pyarrow", "importlib.metadata"),
    }
    assert among(found, unwanted) == []


def test_up_loads_only_what_starts_a_node(tmp_path: Path) -> None:
    words = ["headrace.cli", "up", "--port", "0", "--data", str(tmp_path / "data")]
    found = imported_until_ready(words, tmp_path)
    assert "headrace.cli.local_node" in found
    unwanted = {
        *("headrace.client", "headrace.node", "headrace.machines", "headrace.storage", "headrace.records"),
        *("headrace.cli.client_warnings", "headrace.cli.sampling", "headrace.server.process"),
        *("json", "logging", "shutil", "asyncio", "http", "ssl", "random", "tempfile", "difflib", "rich"),
        *("importlib.metadata", "dataclasses"),
    }
    assert among(found, unwanted) == []
