"""Kafka 4's own `server.properties`, as it is unpacked: `headrace serve` starts with it, and clients work."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer

from headrace.server.config import read_settings

STOCK = Path(__file__).with_name("stock.properties")
WAIT_S = 60.0


def test_every_entry_is_known_and_taken() -> None:
    file = read_settings(STOCK)
    assert file.warnings == []
    settings = file.settings
    assert [(one.name, one.host, one.port) for one in settings.client_listeners] == [("PLAINTEXT", "", 9092)]
    assert [(one.name, one.host, one.port) for one in settings.advertised_listeners] == [
        ("PLAINTEXT", "localhost", 9092)
    ]
    assert [(one.host, one.port) for one in settings.advertised_controllers] == [("localhost", 9093)]
    assert settings.inter_broker_listener_name == "PLAINTEXT"
    assert settings.log_dirs == ("/tmp/kraft-combined-logs",)


def test_an_unmodified_client_is_served(new_shell: Callable[[str], Any], tmp_path: Path) -> None:
    """Only the client port and the directory are others, since tests run side by side."""
    path = tmp_path / "server.properties"
    path.write_text(STOCK.read_text().replace(":9092", ":0"))
    process = new_shell("").start(
        "serve",
        str(path),
        "--set",
        f"log.dirs={tmp_path}/data",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    word, bootstrap = process.stdout.readline().decode().split()
    assert word == "ready"
    assert bootstrap.startswith("localhost:")
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("orders", b"one")
    assert producer.flush(WAIT_S) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe(["orders"])
        message = consumer.poll(WAIT_S)
        assert message is not None
        assert (message.error(), message.value()) == (None, b"one")
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0
    warnings = [line for line in said.decode().splitlines() if " warning " in line]
    # a busy machine makes calls slow, which is not the settings' fault; the listener is for everybody
    expected = ("slow_call", "listener_without_tls")
    assert [line for line in warnings if not any(event in line for event in expected)] == []
    assert any("listener_without_tls" in line for line in warnings)
