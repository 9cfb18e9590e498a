"""Every test of the codec runs twice: on the modules as built, and on their source as plain Python."""

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from harness.interpreted import interpreted
from headrace.records import _codec, _columns

AS_BUILT = SimpleNamespace(codec=_codec, columns=_columns)


@pytest.fixture(params=["as built", "interpreted"])
def form(request: pytest.FixtureRequest) -> SimpleNamespace:
    return AS_BUILT if request.param == "as built" else interpreted("_codec", "_columns")


@pytest.fixture
def codec(form: SimpleNamespace) -> ModuleType:
    return form.codec


@pytest.fixture
def new_columns(form: SimpleNamespace) -> Callable[[], Any]:
    return form.columns.Columns
