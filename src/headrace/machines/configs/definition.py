"""Definition of settings: key, type, default, allowed values, and who may change it while the broker runs.

The keys are written as tables of text, one line per key, parsed on first use (a millisecond for all):

    retention.ms long 604800000 -1.. medium topic < log.retention.ms log.retention.minutes log.retention.hours
        Age at which records may be deleted; -1 keeps them for ever.

that is: key, type, default, allowed values, importance, update, the broker keys that give the default (most
specific first), and on indented lines what it does.
- Default: `null`, `required`, `""` for the empty text, or the text itself.
- Allowed: `*` anything, `1..9` a range open at either end, `|-1` one more value, `{a,b}` a choice (`~{a,b}`
  in any case), `replicas` a throttle list, `reset` where a reader without an offset begins.
- Update: `topic` or `group`; of a broker `ro` only at the start, `broker` per broker while running, `cluster`
  also for all brokers at once; `internal` is accepted but not listed.
"""

from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from headrace.machines.configs import broker_keys, coordinator_keys, group_keys, kept_keys, topic_keys

KEPT_DOC = "Accepted for compatibility with Kafka; it has no effect here."


class ConfigType(IntEnum):
    """Kafka's numbers for the types of settings."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigKey(NamedTuple):
    name: str
    type: ConfigType
    default: str | None  # as text; None is "not set"
    allowed: str
    importance: str
    update: str
    synonyms: tuple[
        str, ...
    ]  # broker keys that give a topic's or group's key its default, most specific first
    doc: str
    is_required: bool = False

    @property
    def is_sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    @property
    def is_text(self) -> bool:
        """Neither a number nor a flag."""
        return self.type in (ConfigType.STRING, ConfigType.LIST, ConfigType.CLASS, ConfigType.PASSWORD)

    @property
    def is_internal(self) -> bool:
        return self.update == "internal"

    @property
    def is_read_only(self) -> bool:
        return self.update in ("ro", "internal")


def parse_table(table: str, doc: str = "") -> dict[str, ConfigKey]:
    """Reads a table in the notation above; `doc` is for keys without a text of their own."""
    keys: dict[str, ConfigKey] = {}
    last = ""
    texts: list[str] = []
    for line in table.splitlines():
        if line.startswith(" "):
            texts.append(line.strip())
            continue
        if texts:
            keys[last] = keys[last]._replace(doc=" ".join(texts))
            texts = []
        if not line:
            continue
        facts, _, synonyms = line.partition(" < ")
        last, type_name, default, allowed, importance, update = facts.split()
        keys[last] = ConfigKey(
            last,
            ConfigType[type_name.upper()],
            None if default in ("null", "required") else "" if default == '""' else default,
            allowed,
            importance,
            update,
            tuple(synonyms.split()),
            doc,
            default == "required",
        )
    if texts:
        keys[last] = keys[last]._replace(doc=" ".join(texts))
    return keys


@lru_cache(maxsize=1)
def topic_config_keys() -> dict[str, ConfigKey]:
    return parse_table(topic_keys.TABLE)


@lru_cache(maxsize=1)
def group_config_keys() -> dict[str, ConfigKey]:
    return parse_table(group_keys.TABLE, KEPT_DOC)


@lru_cache(maxsize=1)
def broker_config_keys() -> dict[str, ConfigKey]:
    """Every broker key, sorted by name; those without effect say so in their text."""
    keys = parse_table(kept_keys.TABLE, KEPT_DOC)
    keys |= parse_table(broker_keys.TABLE)
    keys |= parse_table(coordinator_keys.TABLE)
    return dict(sorted(keys.items()))


# The same duration in a coarser unit: older spellings, asked in this order when the finer one is not set.
COARSER_UNITS: dict[str, tuple[tuple[str, int], ...]] = {
    "log.retention.ms": (("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000)),
    "log.roll.ms": (("log.roll.hours", 3_600_000),),
    "log.roll.jitter.ms": (("log.roll.jitter.hours", 3_600_000),),
    "log.flush.interval.ms": (("log.flush.scheduler.interval.ms", 1),),
}
