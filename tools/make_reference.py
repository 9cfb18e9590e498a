"""Writes docs/reference/ from the code: settings, APIs and metrics as this version really has them.

`python tools/make_reference.py` writes the pages, `--check` only tells which are stale. Nothing here is a
list of its own: keys come from machines/configs, APIs from node/routes, metrics from a page that the server
itself makes, and whether a setting has an effect from who reads it in the source.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace

from headrace.client.settings.keys import OTHER_NAMES, all_keys
from headrace.machines.configs.definition import (
    COARSER_UNITS,
    KEPT_DOC,
    ConfigKey,
    broker_config_keys,
    group_config_keys,
    topic_config_keys,
)
from headrace.node.metrics import ApiMetrics, Metrics
from headrace.node.routes import PRODUCE, SERVED
from headrace.node.settings import Settings
from headrace.node.topic_config import _PLAIN as LOG_CONFIG_KEYS
from headrace.protocol.api import APIS, Api, Listener
from headrace.server.clock import SystemClock
from headrace.server.gate import Gate, GateLimits
from headrace.server.logs import Log
from headrace.server.metrics import MetricsEndpoint

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "headrace"
TARGET = ROOT / "docs" / "reference"

NOTICE = "<!-- made by `make docs` from the code; changes here are overwritten -->\n"

# Topic keys whose field in LogConfig, or beside it, has another shape than the key.
SHAPED_KEYS = {
    "cleanup.policy": "cleanup_policy",
    "headrace.sealed.compression.type": "sealed_compression_type",
    "min.insync.replicas": "min_insync_replicas",
}

CHANGED = {
    "ro": "at the start",
    "broker": "running, per broker",
    "cluster": "running",
    "internal": "at the start",
}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


# --- what has an effect ------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def read_in_source() -> tuple[frozenset[str], frozenset[str]]:
    """Attributes that are read, and texts that are written down, anywhere but where keys are declared."""
    attributes: set[str] = set()
    texts: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        inside = path.relative_to(SOURCE)
        if inside.parts[:2] == ("machines", "configs"):
            continue
        names_all = inside.parts == ("node", "topic_config.py")  # it maps keys to fields, read or not
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                attributes.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and not names_all:
                texts.add(node.value)
    return frozenset(attributes), frozenset(texts)


def topic_key_has_effect(key: ConfigKey) -> bool:
    fields = {name: field for field, name in LOG_CONFIG_KEYS.items()} | SHAPED_KEYS
    attributes, _ = read_in_source()
    return fields.get(key.name) in attributes


def broker_key_has_effect(key: ConfigKey) -> bool:
    if key.doc == KEPT_DOC:
        return False
    attributes, texts = read_in_source()
    field = key.name.replace(".", "_")
    if key.name in texts or (field in Settings.__annotations__ and field in attributes):
        return True
    return key.name in defaults_of_topics()


@lru_cache(maxsize=1)
def defaults_of_topics() -> frozenset[str]:
    """Broker keys by which topics with an effect get their defaults, in whatever unit."""
    names: set[str] = set()
    for key in topic_config_keys().values():
        if topic_key_has_effect(key):
            for name in key.synonyms:
                names |= {name, *(coarser for coarser, _ in COARSER_UNITS.get(name, ()))}
    return frozenset(names)


# --- settings ---------------------------------------------------------------------------------------


def shown_default(key: ConfigKey) -> str:
    if key.is_required:
        return "required"
    if key.default is None:
        return "not set"
    if key.default == "":
        return "empty"
    remark = in_words(key)
    return f"`{key.default}`" + (f" ({remark})" if remark else "")


def in_words(key: ConfigKey) -> str:
    """A large number as people say it."""
    assert key.default is not None
    if not key.default.isdigit() or int(key.default) < 1000:
        return ""
    number = int(key.default)
    if number in (2**63 - 1, 2**31 - 1):
        return "no limit"
    if key.name.endswith(".ms"):
        units = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000))
    elif "bytes" in key.name:
        units = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
    else:
        return ""
    for name, size in units:
        if number % size == 0:
            count = number // size
            return f"{count} {name}{'s' if count > 1 and size >= 1000 and name.islower() else ''}"
    return ""


def shown_allowed(key: ConfigKey) -> str:
    allowed = key.allowed
    if allowed == "*":
        return "true, false" if key.type.name == "BOOLEAN" else "any"
    if allowed == "reset":
        return "`earliest`, `latest`, `by_duration:PnDTnHnMn.nS`"
    if allowed == "object":
        return "an object of Python"
    if allowed == "replicas":
        return "`partition:broker` pairs, or `*`"
    if allowed.endswith("}"):
        return ", ".join(f"`{choice}`" for choice in allowed.strip("~{}").split(","))
    bounds, _, also = allowed.partition("|")
    low, _, high = bounds.partition("..")
    text = f"{low} to {high}" if low and high else f"at least {low}" if low else f"at most {high}"
    return text + (f", or {also}" if also else "")


def listed(keys: Iterable[ConfigKey]) -> list[ConfigKey]:
    return [key for key in keys if not key.is_internal]


def topic_configs() -> str:
    keys = listed(topic_config_keys().values())
    page = NOTICE + "# Settings of a topic\n\n"
    page += (
        "Given when a topic is created (`headrace topic create orders -c retention.ms=86400000`) and changed"
        " at any time (`headrace topic alter`, `headrace config set`, or any Kafka admin client); a change"
        " takes effect at once. What a topic does not set comes from the broker, by the key in the fourth"
        " column.\n\n"
    )
    if not topic_key_has_effect(topic_config_keys()["delete.retention.ms"]):
        page += (
            "Compaction is not there yet: a topic with `cleanup.policy=compact` takes only records with keys"
            " and keeps all of them.\n\n"
        )
    page += table(
        ("Key", "Type", "Default", "Broker's key", "Allowed", "What it does"),
        (
            (
                f"`{key.name}`",
                key.type.name.lower(),
                shown_default(key),
                ", ".join(f"`{name}`" for name in key.synonyms) or "–",
                shown_allowed(key),
                key.doc,
            )
            for key in keys
            if topic_key_has_effect(key)
        ),
    )
    page += "\n## Accepted without effect\n\n"
    page += (
        "Checked, kept and described like the others, so that Kafka's tools work; nothing acts on them.\n\n"
    )
    page += table(
        ("Key", "Type", "Default", "Allowed", "What it is for"),
        (
            (f"`{key.name}`", key.type.name.lower(), shown_default(key), shown_allowed(key), key.doc)
            for key in keys
            if not topic_key_has_effect(key)
        ),
    )
    return page


def broker_configs() -> str:
    keys = listed(broker_config_keys().values())
    page = NOTICE + "# Settings of a broker\n\n"
    page += (
        "Read from the file that `headrace serve` is given (TOML or Kafka's `server.properties`) and from"
        " `--set`. Settings whose fourth column says *running* can be changed while the broker runs:"
        " `headrace config set` or any Kafka admin client, for one broker or for the whole cluster. A key"
        " that the broker does not know causes a warning; a wrong value ends the start.\n\n"
    )
    page += table(
        ("Key", "Type", "Default", "Changed", "Allowed", "What it does"),
        (
            (
                f"`{key.name}`",
                key.type.name.lower(),
                shown_default(key),
                CHANGED[key.update],
                shown_allowed(key),
                key.doc,
            )
            for key in keys
            if broker_key_has_effect(key)
        ),
    )
    page += "\n## Declared, without effect yet\n\n"
    page += table(
        ("Key", "Type", "Default", "What it is for"),
        (
            (f"`{key.name}`", key.type.name.lower(), shown_default(key), key.doc)
            for key in keys
            if key.doc != KEPT_DOC and not broker_key_has_effect(key)
        ),
    )
    page += "\n## Kafka's others\n\n"
    page += (
        "Read, checked and described, so that a file written for Kafka can be used; they do nothing here.\n\n"
    )
    page += table(
        ("Key", "Type", "Default"),
        ((f"`{key.name}`", key.type.name.lower(), shown_default(key)) for key in keys if key.doc == KEPT_DOC),
    )
    return page


def group_configs() -> str:
    keys = group_config_keys().values()
    page = NOTICE + "# Settings of a group\n\n"
    page += (
        "Set for one group at a time (`headrace config set group readers consumer.session.timeout.ms=50000`,"
        " or any Kafka admin client), also before it has members. What a group does not set comes from the"
        " broker, by the key in the fourth column, and the broker's `group.*.min.*` and `group.*.max.*` keys"
        " bound what it may set. Classic groups have none: their members bring their own.\n\n"
    )
    page += table(
        ("Key", "Type", "Default", "Broker's key", "Allowed", "What it does"),
        (
            (
                f"`{key.name}`",
                key.type.name.lower(),
                shown_default(key),
                ", ".join(f"`{name}`" for name in key.synonyms) or "–",
                shown_allowed(key),
                key.doc,
            )
            for key in keys
            if key.doc != KEPT_DOC
        ),
    )
    page += "\n## Accepted without effect\n\n"
    page += "Share and streams groups are not served; their settings are checked, kept and described.\n\n"
    page += table(
        ("Key", "Type", "Default", "Broker's key", "Allowed"),
        (
            (
                f"`{key.name}`",
                key.type.name.lower(),
                shown_default(key),
                ", ".join(f"`{name}`" for name in key.synonyms) or "–",
                shown_allowed(key),
            )
            for key in keys
            if key.doc == KEPT_DOC
        ),
    )
    return page


def client_configs() -> str:
    keys = all_keys().values()
    page = NOTICE + "# Settings of a client\n\n"
    page += (
        "Given to `Producer`, `Consumer` and `Admin` as keywords (`linger_ms=20`) or as a mapping with"
        ' Kafka\'s names (`{"linger.ms": 20}`), and to the commands as `-X linger.ms=20`. A name that does'
        " not exist is an error that suggests the closest one.\n\n"
    )
    for client, title in (("all", "All clients"), ("producer", "Producer"), ("consumer", "Consumer")):
        page += f"## {title}\n\n"
        page += table(
            ("Key", "Type", "Default", "Allowed", "What it does"),
            (
                (f"`{key.name}`", key.type.name.lower(), shown_default(key), shown_allowed(key), key.doc)
                for key in keys
                if key.update == client and key.doc != KEPT_DOC
            ),
        )
        page += "\n"
    page += "## Names in other clients\n\n"
    page += (
        "The names of librdkafka, kafka-python, aiokafka and newer Java clients for the same settings.\n\n"
    )
    page += table(("Name", "Key here"), ((f"`{other}`", f"`{name}`") for other, name in OTHER_NAMES.items()))
    page += "\n## Accepted without effect\n\n"
    page += (
        "Checked, so that files of Java's clients can be shared; the client warns that they do nothing.\n\n"
    )
    page += table(
        ("Key", "Type", "Default"),
        ((f"`{key.name}`", key.type.name.lower(), shown_default(key)) for key in keys if key.doc == KEPT_DOC),
    )
    return page


# --- APIs -------------------------------------------------------------------------------------------


def versions(lowest: int, highest: int) -> str:
    return str(lowest) if lowest == highest else f"{lowest}–{highest}"


def remark(api: Api) -> str:
    if api.key == PRODUCE:
        return f"told from 0 for old librdkafka, served from {api.first} on, as in Kafka"
    return ""


def apis() -> str:
    page = NOTICE + "# APIs\n\n"
    page += (
        "What ApiVersions tells clients, beside what Apache Kafka 4.3 serves. A key is told only when it"
        " works; a request that is not served closes its connection, as in Kafka.\n\n"
    )
    page += table(
        ("Key", "API", "Headrace", "Kafka 4.3", ""),
        (
            (
                str(key),
                APIS[key].name,
                versions(lowest, highest),
                versions(0 if key == PRODUCE else APIS[key].first, APIS[key].last),
                remark(APIS[key]),
            )
            for key, (lowest, highest) in sorted(SERVED.items())
        ),
    )
    page += "\n## Not served yet\n\n"
    page += "Their messages are declared; those of controllers alone never reach a broker's listener.\n\n"
    page += table(
        ("Key", "API", "Kafka 4.3", "Listener"),
        (
            (
                str(int(api.key)),
                api.name,
                versions(api.first, api.last),
                "controller" if api.listeners is Listener.CONTROLLER else "broker",
            )
            for api in sorted(APIS.values())
            if api.key not in SERVED
        ),
    )
    return page


# --- metrics ----------------------------------------------------------------------------------------


async def scraped() -> str:
    """A page of metrics as the server makes it, with one of everything that is labelled."""
    node = SimpleNamespace(metrics=Metrics(), log_sizes=lambda: [("orders", 0, 1)])
    node.metrics.apis[PRODUCE] = ApiMetrics()
    gate = Gate(asyncio.get_running_loop(), SystemClock(), Log(), GateLimits())
    return MetricsEndpoint(SimpleNamespace(node=node, gate=gate)).text()  # type: ignore[arg-type]


def metrics() -> str:
    kinds: dict[str, str] = {}
    helps: dict[str, str] = {}
    labels: dict[str, dict[str, None]] = {}
    for line in asyncio.run(scraped()).splitlines():
        if line.startswith("# HELP "):
            name, _, helps_text = line.removeprefix("# HELP ").partition(" ")
            helps[name] = helps_text
        elif line.startswith("# TYPE "):
            name, _, kinds[name] = line.removeprefix("# TYPE ").partition(" ")
        elif "{" in line:
            sample, _, rest = line.partition("{")
            owner = max((name for name in helps if sample.startswith(name)), key=len)
            found = labels.setdefault(owner, {})
            found.update((label.partition("=")[0], None) for label in rest.partition("}")[0].split(","))
    page = NOTICE + "# Metrics\n\n"
    page += (
        "With `headrace.metrics.port` the broker serves them at `GET /metrics`, in Prometheus' text format,"
        " on `headrace.metrics.host` (127.0.0.1). Counters begin at 0 with the process. A histogram has"
        " `_bucket`, `_sum` and `_count`, and its label `le` is the upper bound of a bucket in seconds.\n\n"
    )
    page += table(
        ("Metric", "Kind", "Labels", "What it is"),
        (
            (
                f"`{name}`",
                kinds[name],
                ", ".join(f"`{label}`" for label in labels.get(name, ())) or "–",
                text,
            )
            for name, text in helps.items()
        ),
    )
    return page


def overview() -> str:
    return (
        NOTICE
        + "# Reference\n\n"
        + "Made from the code by `make docs`; a test fails when a page here is not what the code says.\n\n"
        + "- [Settings of a topic](topic-configs.md)\n"
        + "- [Settings of a broker](broker-configs.md)\n"
        + "- [Settings of a group](group-configs.md)\n"
        + "- [Settings of a client](client-configs.md)\n"
        + "- [APIs](apis.md), beside those of Kafka 4.3\n"
        + "- [Metrics](metrics.md)\n"
        + "- [The `headrace` command](../cli.md)\n"
    )


PAGES: dict[str, Callable[[], str]] = {
    "README.md": overview,
    "topic-configs.md": topic_configs,
    "broker-configs.md": broker_configs,
    "group-configs.md": group_configs,
    "client-configs.md": client_configs,
    "apis.md": apis,
    "metrics.md": metrics,
}


def stale_pages() -> list[str]:
    return [
        name
        for name, make in PAGES.items()
        if not (TARGET / name).exists() or (TARGET / name).read_text() != make()
    ]


def main() -> int:
    arguments = argparse.ArgumentParser(description="Writes docs/reference/ from the code.")
    arguments.add_argument("--check", action="store_true", help="write nothing, fail when a page is stale")
    stale = stale_pages()
    if arguments.parse_args().check:
        for name in stale:
            print(f"docs/reference/{name} is stale: run `make docs`", file=sys.stderr)
        return 1 if stale else 0
    TARGET.mkdir(parents=True, exist_ok=True)
    for name in stale:
        (TARGET / name).write_text(PAGES[name]())
        print(f"docs/reference/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
