"""Record: one change of a coordinator's state."""

from __future__ import annotations

from typing import NamedTuple

from headrace.protocol.notation import Data


class Record(NamedTuple):
    """Without a value, what the key names is gone."""

    key: Data
    value: Data | None
