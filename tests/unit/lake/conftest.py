"""Most tests of lake tables hold for both formats."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["delta", "iceberg"])
def format(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name
