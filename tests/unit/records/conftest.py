"""Every test of the codec runs twice: on the module as it was built, and on its source as plain Python."""

from types import ModuleType

import pytest

from headrace.records import _codec
from headrace.records.compiled import interpreted_codec


@pytest.fixture(params=["as built", "interpreted"])
def codec(request: pytest.FixtureRequest) -> ModuleType:
    return _codec if request.param == "as built" else interpreted_codec()
