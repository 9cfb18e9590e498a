"""What a program prints, a JSON line per step. While brokers are killed, it may be started again.

Clients try again what they send for producers and consumers. What an admin asks is asked once by franz-go and
kafkajs: when the broker that should answer is killed, they give up, and on Kafka it is the same.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from typing import Any

from harness.broker import Broker

WAIT_S = 120
ATTEMPTS = 8


def told_by(
    broker: Broker, command: Callable[[str], list[str]], topic: str, environment: dict[str, str] | None = None
) -> tuple[list[Any], str]:
    """Its steps, and the topic of the attempt that did not give up: each has one of its own, which the steps
    call `topic`.
    """
    for attempt in range(ATTEMPTS if broker.is_under_fire else 1):
        own = f"{topic}-{attempt}" if attempt else topic
        done = subprocess.run(
            command(own), capture_output=True, text=True, timeout=WAIT_S, env=os.environ | (environment or {})
        )
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stderr + done.stdout[-2000:]
    return [json.loads(line.replace(own, topic)) for line in done.stdout.splitlines()], own
