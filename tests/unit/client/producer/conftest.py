"""The accumulator in both of its forms: as it was built, and its source as plain Python."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness.accumulating import first_candidate
from harness.interpreted import interpreted
from harness.producer_simulation import NobodyWaits
from headrace.client.producer import _accumulator, _batch, _source_column


@pytest.fixture(params=["as built", "interpreted"])
def module(request: pytest.FixtureRequest) -> Any:
    modules = (_batch, _source_column, _accumulator)
    if request.param == "interpreted":
        plain = interpreted("_batch", "_source_column", "_accumulator")
        modules = (plain.batch, plain.source_column, plain.accumulator)
    return SimpleNamespace(**{name: value for module in modules for name, value in vars(module).items()})


@pytest.fixture
def make(module: Any) -> Any:
    def made(partitions: int = 2, **more: Any) -> Any:
        accumulator = module.Accumulator(NobodyWaits(), first_candidate, **more)
        accumulator.learn("t", [True] * partitions)
        return accumulator

    return made
