"""Shell completion of topics, groups, subjects and other names, and of the keys of settings.

Somebody has pressed Tab and waits, so a broker or registry has `TIMEOUT_S` in all. If something fails, the
shell gets no names and nothing is printed: the command itself will report the error.
"""

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from headrace.client.threads.admin import Admin

TIMEOUT_S = 1.0
OFFERED_MAX = 500  # more names help nobody

Completer = Callable[[click.Context, click.Parameter, str], list[str]]


# --- names that a broker knows ---------------------------------------------------------------------------


def topics(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """With internal topics only if the word begins with their underscore."""

    def names(admin: "Admin") -> list[str]:
        return [topic.name for topic in admin.list_topics(internal=begun.startswith("_"))]

    return _matching(context, parameter, begun, _ask_broker(context, names))


def groups(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    def names(admin: "Admin") -> list[str]:
        return [group.group for group in admin.list_groups()]

    return _matching(context, parameter, begun, _ask_broker(context, names))


def transactional_ids(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    def names(admin: "Admin") -> list[str]:
        return [one.transactional_id for one in admin.list_transactions()]

    return _matching(context, parameter, begun, _ask_broker(context, names))


def users(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """Users with passwords, with `User:` before their names if that was typed."""
    kind = "User:" if begun.startswith("User:") else ""

    def names(admin: "Admin") -> list[str]:
        return [kind + name for name in admin.describe_users()]

    return _matching(context, parameter, begun, _ask_broker(context, names))


def tenants(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    def names(admin: "Admin") -> list[str]:
        from headrace.cli.tenant import tenant_names

        return tenant_names(admin)

    return _matching(context, parameter, begun, _ask_broker(context, names))


def sinks(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    def names(admin: "Admin") -> list[str]:
        return [sink.app_id for sink in admin.list_sinks()]

    return _matching(context, parameter, begun, _ask_broker(context, names))


def brokers(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    def names(admin: "Admin") -> list[str]:
        return ["all", *(str(broker.broker_id) for broker in admin.list_brokers())]

    return _matching(context, parameter, begun, _ask_broker(context, names))


def resources(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """NAME of `headrace config`, by the KIND before it."""
    by_kind: dict[str, Completer] = {"topic": topics, "group": groups, "broker": brokers}
    return by_kind[context.params["kind"]](context, parameter, begun) if _kind(context) else []


# --- keys of settings, which need no broker ---------------------------------------------------------------


def topic_keys(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    return _matching(context, parameter, begun, _keys("topic"))


def topic_settings(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """Keys with their equals sign: a value follows."""
    return _matching(context, parameter, begun, _with_equals("topic"))


def broker_settings(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    return _matching(context, parameter, begun, _with_equals("broker"))


def resource_keys(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """KEYS of `headrace config`, by the KIND before them."""
    return _matching(context, parameter, begun, _keys(_kind(context)))


def resource_settings(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    return _matching(context, parameter, begun, _with_equals(_kind(context)))


def quota_keys(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    from headrace.cli.quota import CLIENT_KEYS, IP_KEYS

    return _matching(context, parameter, begun, CLIENT_KEYS + IP_KEYS)


def quota_values(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    from headrace.cli.quota import CLIENT_KEYS, IP_KEYS

    return _matching(context, parameter, begun, [f"{key}=" for key in CLIENT_KEYS + IP_KEYS])


def _keys(kind: str) -> list[str]:
    from headrace.machines.configs.definition import (
        broker_config_keys,
        group_config_keys,
        topic_config_keys,
    )

    tables = {"topic": topic_config_keys, "broker": broker_config_keys, "group": group_config_keys}
    if kind not in tables:
        return []
    return sorted(name for name, key in tables[kind]().items() if not key.is_internal)


def _with_equals(kind: str) -> list[str]:
    return [f"{key}=" for key in _keys(kind)]


def _kind(context: click.Context) -> str:
    kind = context.params.get("kind")
    return kind if isinstance(kind, str) and kind in ("topic", "group", "broker") else ""


# --- names that a registry knows -------------------------------------------------------------------------


def subjects(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    def names() -> list[str]:
        from headrace.schemas import Registry

        return Registry(context.params["registry"], timeout_s=TIMEOUT_S).subjects()

    return _matching(context, parameter, begun, _run_in_time(names))


# --- in time and in silence ------------------------------------------------------------------------------


def _matching(
    context: click.Context, parameter: click.Parameter, begun: str, names: Iterable[str]
) -> list[str]:
    """Names that begin with what was typed, without those on the command line already, and without those
    that a shell must not show: it prints control characters as they are.
    """
    from headrace.cli.terminal import visible

    given = context.params.get(parameter.name or "")
    taken = set(given) if isinstance(given, tuple) else set()
    offered = (name for name in names if name.startswith(begun) and name not in taken)
    return [name for name in offered if visible(name) == name][:OFFERED_MAX]


def _ask_broker(context: click.Context, names: Callable[["Admin"], list[str]]) -> list[str]:
    from headrace.cli.client_settings import settings_of
    from headrace.cli.options import DEFAULT_BOOTSTRAP

    bootstrap = context.params.get("bootstrap")
    with context.scope(cleanup=False):  # settings_of asks it for --client-config and -X
        settings = settings_of(
            "admin",
            bootstrap if isinstance(bootstrap, str) else DEFAULT_BOOTSTRAP,
            default_api_timeout_ms=round(TIMEOUT_S * 1000),
        )

    def ask() -> list[str]:
        from headrace.client.threads.admin import Admin

        if not any(map(_listens, str(settings["bootstrap.servers"]).split(","))):
            return []  # a client would try again until its time is over
        with Admin(settings) as admin:
            return names(admin)

    return _run_in_time(ask)


def _listens(address: str) -> bool:
    import socket  # only when Tab was pressed

    host, _, port = address.strip().rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), TIMEOUT_S).close()
    except (OSError, ValueError):
        return False
    return True


def _run_in_time(names: Callable[[], list[str]]) -> list[str]:
    """Runs in a thread, which is abandoned after `TIMEOUT_S`: even a name lookup can take longer."""
    found: list[str] = []

    def ask() -> None:
        try:
            found.extend(names())
        except Exception:
            return

    thread = threading.Thread(target=ask, name="completion", daemon=True)
    thread.start()
    thread.join(TIMEOUT_S)
    return list(found)
