"""Settings as one listener sees them.

A key may be set for one listener alone, with the prefix `listener.name.<name>.` and the name in lower case,
and for one mechanism of it with a second prefix; otherwise the key without a prefix counts, then its default.
"""

from collections.abc import Mapping
from typing import Any

from headrace.machines.configs.topic import broker_value
from headrace.machines.configs.values import InvalidConfig


class ListenerTexts:
    """The texts of a settings file as one listener sees them."""

    def __init__(self, texts: Mapping[str, str], listener: str) -> None:
        self._texts = texts
        self._prefix = f"listener.name.{listener.lower()}."

    def mechanism_name(self, key: str, mechanism: str) -> str:
        """The name by which the key is set for one mechanism of the listener."""
        return f"{self._prefix}{mechanism.lower()}.{key}"

    def name(self, key: str, mechanism: str = "") -> str:
        """The name by which the key is set; the key itself if it is not."""
        if mechanism:
            own = self.mechanism_name(key, mechanism)
            if own in self._texts:
                return own
        own = self._prefix + key
        return own if own in self._texts else key

    def value(self, key: str, mechanism: str = "") -> Any:
        """The typed value; InvalidConfig names the setting. Of a mechanism it may be another one."""
        name = self.name(key, mechanism)
        try:
            return broker_value(key, ({key: self._texts[name]},) if name in self._texts else ())
        except InvalidConfig as error:
            raise InvalidConfig(str(error).replace(key, name)) from error

    def text(self, key: str) -> str | None:
        """None if it is not set, or empty."""
        value = self.value(key)
        return value if isinstance(value, str) and value.strip() else None
