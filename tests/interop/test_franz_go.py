"""franz-go, a Go module: every codec, direct consuming by partition, and kadm."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from harness.broker import CACHE, Broker
from interop.side_by_side import assert_same

HERE = Path(__file__).parent / "go"
WAIT_S = 120


@pytest.fixture(scope="module")
def franz() -> Path:
    """The story as a binary."""
    binary = CACHE / "go" / "franz"
    environment = os.environ | {"GOMODCACHE": str(CACHE / "go" / "modules"), "GOFLAGS": "-modcacherw"}
    subprocess.run(
        ["go", "build", "-o", str(binary), "."], check=True, timeout=600, cwd=HERE, env=environment
    )
    return binary


def test_produces_consumes_and_administers(brokers: tuple[Broker, Broker], franz: Path, topic: str) -> None:
    def story(broker: Broker) -> list[object]:
        command = [str(franz), broker.bootstrap, topic]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)
        assert done.returncode == 0, done.stderr + done.stdout[-2000:]
        return [json.loads(line) for line in done.stdout.splitlines()]

    told = assert_same(brokers, story)
    (consumed,) = [line["told"] for line in told if line["step"] == "consume"]  # type: ignore[index]
    assert len(consumed) == 1800
