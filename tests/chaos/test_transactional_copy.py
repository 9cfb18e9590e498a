"""A small transactional copy with kills; `python -m chaos.copying` is the long one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chaos.copying import SETTINGS, Copying, Plan
from harness.broker import Broker


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_each_record_is_copied_exactly_once(new_broker: Callable[..., Broker], protocol: str) -> None:
    broker = new_broker(SETTINGS).start()
    Copying(broker, Plan(records=10_000, kills=3, protocol=protocol), print).play()
    broker.stop()
