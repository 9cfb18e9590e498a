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
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from headrace.machines.configs.group import bound
from headrace.machines.metadata.controller.topic_rules import UNCLEAN_LEADER_ELECTION
from headrace.machines.metadata.image import ClusterImage
from headrace.node.cluster_metrics import (
    BrokerNumbers,
    ClusterMetrics,
    ControllerNumbers,
    QuorumNumbers,
    ReplicaNumbers,
    cluster_numbers,
)
from headrace.node.metrics import ApiMetrics, Metrics
from headrace.node.rights import RIGHTS, RIGHTS_ON_CONTROLLERS, Question, Right
from headrace.node.routes import PRODUCE, SERVED, SERVED_TO_NODES
from headrace.node.settings import Settings
from headrace.node.topic_config import _PLAIN as LOG_CONFIG_KEYS
from headrace.protocol.api import APIS, Api, Listener
from headrace.server.clock import SystemClock
from headrace.server.connection_limits import ConnectionLimits, Connections
from headrace.server.logs import Log
from headrace.server.metrics import MetricsPage

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "headrace"
TARGET = ROOT / "docs" / "reference"

NOTICE = "<!-- made by `make docs` from the code; changes here are overwritten -->\n"

# Kafka's keys are small numbers; ours begin here.
OWN_KEYS_FROM = 30_000

# Topic keys that the controller reads by name: they decide about leaders.
CONTROLLER_KEYS = (UNCLEAN_LEADER_ELECTION,)

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
    return key.name in CONTROLLER_KEYS or fields.get(key.name) in attributes


def broker_key_has_effect(key: ConfigKey) -> bool:
    if key.doc == KEPT_DOC:
        return False
    attributes, texts = read_in_source()
    field = key.name.replace(".", "_")
    if key.name in texts or (field in Settings.__annotations__ and field in attributes):
        return True
    return key.name in defaults_of_topics() or key.name in bounds_of_groups()


@lru_cache(maxsize=1)
def bounds_of_groups() -> frozenset[str]:
    """Broker keys that limit the settings of groups with an effect."""
    served = [key for key in group_config_keys().values() if key.doc != KEPT_DOC]
    return frozenset(name for key in served for which in ("min", "max") if (name := bound(key, which)))


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
        return "a Python object"
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
        "Set them when you create a topic (`headrace topic create orders -c retention.ms=86400000`) or at any"
        " time later (`headrace topic alter`, `headrace config set`, or any Kafka admin client); a change"
        " takes effect at once. The default of a setting is the broker's value of the key in the fourth"
        " column.\n\n"
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
        "The broker checks, stores and describes these settings, so that Kafka's tools work. They have no"
        " effect.\n\n"
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
        "`headrace serve` reads them from its settings file (TOML or Kafka's `server.properties`) and from"
        " `--set`. Settings with *running* in the fourth column can be changed while the broker runs, with"
        " `headrace config set` or any Kafka admin client, for one broker or for the whole cluster. An"
        " unknown key causes a warning; with a wrong value the broker does not start.\n\n"
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
    page += "\n## Without effect, or refused\n\n"
    page += (
        "The broker does not start with a setting that it refuses, because that setting asks for something"
        " that Headrace cannot do yet. The other settings in this table have no effect.\n\n"
    )
    page += table(
        ("Key", "Type", "Default", "What it is for"),
        (
            (f"`{key.name}`", key.type.name.lower(), shown_default(key), key.doc)
            for key in keys
            if key.doc != KEPT_DOC and not broker_key_has_effect(key)
        ),
    )
    page += "\n## Other settings of Kafka\n\n"
    page += (
        "The broker reads, checks and describes these settings, so that you can use a file that was written"
        " for Kafka. They have no effect.\n\n"
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
        "Set them for one group at a time (`headrace config set group readers"
        " consumer.session.timeout.ms=50000`, or any Kafka admin client), also before the group has members."
        " The default of a setting is the broker's value of the key in the fourth column. The broker's"
        " `group.*.min.*` and `group.*.max.*` keys limit the values. Classic groups have no settings: each"
        " member sends its own.\n\n"
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
    page += (
        "The broker does not serve share and streams groups. It checks, stores and describes their"
        " settings.\n\n"
    )
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
        "Pass them to `Producer`, `Consumer` and `Admin` as keywords (`linger_ms=20`) or as a mapping with"
        ' Kafka\'s names (`{"linger.ms": 20}`), and to the commands as `-X linger.ms=20`. An unknown name is'
        " an error that suggests the closest one.\n\n"
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
        "The client checks these settings, so that you can share files with Java's clients. They have no"
        " effect, and the client logs a warning.\n\n"
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
        return f"advertised from 0 for old versions of librdkafka, served from {api.first} on, as in Kafka"
    if api.key >= OWN_KEYS_FROM:
        return "only Headrace has it"
    return ""


def kafkas_versions(api: Api) -> str:
    if api.key >= OWN_KEYS_FROM:
        return "–"
    return versions(0 if api.key == PRODUCE else api.first, api.last)


def served(keys: Mapping[int, tuple[int, int]]) -> str:
    return table(
        ("Key", "API", "Headrace", "Kafka 4.3", ""),
        (
            (
                str(key),
                APIS[key].name,
                versions(lowest, highest),
                kafkas_versions(APIS[key]),
                remark(APIS[key]),
            )
            for key, (lowest, highest) in sorted(keys.items())
        ),
    )


def apis() -> str:
    page = NOTICE + "# APIs\n\n"
    page += (
        "The versions of each API that Headrace serves, compared with Apache Kafka 4.3. After a request that"
        " it does not serve, the broker closes the connection, as Kafka does.\n\n"
        "## For clients\n\n"
        "ApiVersions advertises these APIs.\n\n"
    )
    page += served(SERVED)
    page += "\n## Between nodes\n\n"
    page += "Nodes send these requests to each other, on the listeners of controllers.\n\n"
    page += served(SERVED_TO_NODES)
    page += "\n## Not served yet\n\n"
    page += table(
        ("Key", "API", "Kafka 4.3", "Who would send it"),
        (
            (
                str(int(api.key)),
                api.name,
                versions(api.first, api.last),
                "nodes" if api.listeners is Listener.CONTROLLER else "clients",
            )
            for api in sorted(APIS.values())
            if api.key not in SERVED and api.key not in SERVED_TO_NODES
        ),
    )
    return page


# --- rights -----------------------------------------------------------------------------------------


def told(question: Question) -> str:
    return "left out of the answer" if question.refusal is None else f"`{question.refusal.name}`"


def in_question(right: Right) -> str:
    resource = right.resource.name.lower().replace("_", " ")
    return f"`{right.operation.name}` on {'any topic' if right.of_any else f'the {resource}'}"


def needed(keys: Iterable[int], rows: Mapping[int, Sequence[Question]]) -> str:
    lines = []
    for key in sorted(keys):
        questions = rows[key] or (None,)
        for number, question in enumerate(questions):
            name = (str(key), APIS[key].name) if number == 0 else ("", "")
            if question is None:
                lines.append((*name, "none", "", ""))
            else:
                rights = ", or ".join(map(in_question, question.rights))
                lines.append((*name, rights, question.when, told(question)))
    return table(("Key", "API", "Right", "When", "Without it"), lines)


def rights() -> str:
    page = NOTICE + "# Rights\n\n"
    page += (
        "What a client must be allowed to do when the broker has an authorizer"
        " ([access control](../access-control.md)): the same rights, asked in the same order and refused"
        " with the same errors as in Apache Kafka 4.3.1. Rights come before"
        " existence: who has no right to a topic does not learn from the answer whether there is one of that"
        " name. A rule that allows `READ`, `WRITE`, `DELETE` or `ALTER` also allows `DESCRIBE`; one that"
        " allows `ALTER_CONFIGS` also allows `DESCRIBE_CONFIGS`.\n\n"
        "## For clients\n\n"
    )
    page += needed(SERVED, RIGHTS)
    page += "\n## Between nodes\n\n"
    page += needed(SERVED_TO_NODES, RIGHTS)
    page += "\n## Otherwise on the listeners of controllers\n\n"
    page += needed(RIGHTS_ON_CONTROLLERS, RIGHTS_ON_CONTROLLERS)
    return page


# --- metrics ----------------------------------------------------------------------------------------


async def scraped() -> str:
    """A page of metrics as the server makes it, with one of everything that is labelled."""
    cluster = ClusterMetrics(
        QuorumNumbers("leader", 1, 1, 1, 1, {2: 0}),
        is_active_controller=True,
        controller=ControllerNumbers(cluster_numbers(ClusterImage()), 0, 0),
        broker=BrokerNumbers(ReplicaNumbers(0, 0, 0, 0, 0, 0, {2: 0}), 0, 0),
    )
    node = SimpleNamespace(
        metrics=Metrics(), log_sizes=lambda: [("orders", 0, 1)], cluster_metrics=lambda: cluster
    )
    node.metrics.apis[PRODUCE] = ApiMetrics()
    connections = Connections(asyncio.get_running_loop(), SystemClock(), Log(), ConnectionLimits())
    return MetricsPage(SimpleNamespace(node=node, connections=connections)).text()  # type: ignore[arg-type]


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
        "If `headrace.metrics.port` is set, the broker serves metrics at `GET /metrics`, in Prometheus' text"
        " format, on `headrace.metrics.host` (127.0.0.1). Counters start at 0 with the process. A histogram"
        " has `_bucket`, `_sum` and `_count`, and its label `le` is the upper bound of a bucket in"
        " seconds. A name in brackets is the one that the same number has in Kafka.\n\n"
        "Numbers of the whole cluster (`headrace_cluster_…`) are on every node with the controller role, as"
        " far as that node knows the metadata. For an alert take the maximum over all nodes, and the sum of"
        " what each broker counts for the partitions that it leads, such as"
        " `sum(headrace_under_replicated_partitions) > 0`.\n\n"
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
        + "`make docs` generates these pages from the code; a test fails if a page is out of date.\n\n"
        + "- [Settings of a topic](topic-configs.md)\n"
        + "- [Settings of a broker](broker-configs.md)\n"
        + "- [Settings of a group](group-configs.md)\n"
        + "- [Settings of a client](client-configs.md)\n"
        + "- [APIs](apis.md), compared with Kafka 4.3\n"
        + "- [Rights](rights.md) that each API needs\n"
        + "- [Metrics](metrics.md)\n"
        + "- [Events in a node's log](../log-events.md)\n"
        + "- [The `headrace` command](../cli.md)\n"
    )


PAGES: dict[str, Callable[[], str]] = {
    "README.md": overview,
    "topic-configs.md": topic_configs,
    "broker-configs.md": broker_configs,
    "group-configs.md": group_configs,
    "client-configs.md": client_configs,
    "apis.md": apis,
    "rights.md": rights,
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
