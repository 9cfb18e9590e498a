"""Names with control characters, as any client can choose them, in the output of every command."""

from __future__ import annotations

import json
import os
import select
from collections.abc import Iterator
from typing import Any

import pytest

from headrace import Producer
from headrace.cli.terminal import visible
from headrace.client.admin.acls import Acl, AclFilter, AclOperation, AclResource
from headrace.client.admin.users import QuotaEntity
from headrace.client.threads.admin import Admin

EVIL = "evil\x1b]0;owned\x07\x9b2J\u202e\r\nready 6.6.6.6:9092"


@pytest.fixture
def evil(guarded: Any, guarded_broker: Any) -> Iterator[str]:
    """A topic, beside which everything else has the evil name."""
    bootstrap = guarded_broker.bootstrap
    with Admin(bootstrap) as admin:
        admin.create_topic("good", partitions=1)
        admin.alter_group_offsets(EVIL, {("good", 0): 0})
        admin.set_password(EVIL, "secret")
        admin.create_acls([Acl(AclResource.GROUP, EVIL, f"User:{EVIL}", AclOperation.READ, host=EVIL)])
        admin.alter_quotas({QuotaEntity(EVIL, EVIL): {"producer_byte_rate": 5.0}})
        with (
            Producer(
                bootstrap, transactional_id=EVIL, client_id=EVIL, transaction_timeout_ms=60_000
            ) as producer,
            producer.transaction(),
        ):
            producer.send("good", EVIL.encode())
        yield "good"
        admin.delete_topic("good")
        admin.delete_group(EVIL)
        admin.delete_passwords(EVIL)
        admin.delete_acls([AclFilter()])
        admin.alter_quotas({QuotaEntity(EVIL, EVIL): {"producer_byte_rate": None}})


COMMANDS = [
    ("group", "list"),
    ("group", "describe", EVIL),
    ("group", "lag"),
    ("group", "lag", EVIL),
    ("cluster", "transactions"),
    ("cluster", "transactions", EVIL),
    ("acl", "list"),
    ("acl", "list", "--principal", EVIL),
    ("acl", "explain", EVIL, "read", "--group", EVIL, "--host", EVIL),
    ("acl", "remove", "--group", EVIL),
    ("user", "list"),
    ("user", "remove", EVIL),
    ("quota", "list"),
    ("quota", "explain", "--user", EVIL, "--client-id", EVIL),
    ("group", "delete", EVIL),
    ("group", "describe", EVIL + "?"),
    ("topic", "describe", EVIL),
    ("topic", "create", EVIL),
]


def test_no_control_character_is_printed(guarded: Any, evil: str) -> None:
    seen = 0
    for words in COMMANDS:
        for json_option in ((), ("--json",)):
            done = guarded.attempt(*words, *json_option)
            for printed in (done.out.decode(), done.err):
                assert visible(printed.replace("\n", "")) == printed.replace("\n", ""), words
                assert not [line for line in printed.splitlines() if line.startswith("ready")], words
                seen += "owned" in printed
    assert seen >= len(COMMANDS), "the names are told, in some form"
    assert json.loads(guarded("user", "list", "--json").out)[0]["user"] == EVIL


def test_a_shell_is_not_offered_such_names(guarded: Any, evil: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from cli.completing import completed
    from headrace.cli import completers

    monkeypatch.setattr(completers, "TIMEOUT_S", 60.0)
    assert completed("user", "remove", "ev") == []
    assert completed("group", "describe", "ev") == []
    assert evil in completed("topic", "describe", "go")


@pytest.mark.parametrize("options", [(), ("--json",), ("--format", "%s\\n")])
def test_records_on_a_terminal(
    new_shell: Any, guarded_broker: Any, evil: str, options: tuple[str, ...]
) -> None:
    master, slave = os.openpty()
    process = new_shell(guarded_broker.bootstrap).start("consume", evil, *options, stdout=slave)
    os.close(slave)
    printed = b""
    while select.select([master], [], [], 60)[0]:
        try:
            printed += os.read(master, 10_000)
        except OSError:  # the other end is closed
            break
    assert process.wait(60) == 0
    os.close(master)
    text = printed.decode().replace("\r\n", "\n")  # as the terminal's line discipline writes ends of lines
    assert "owned" in text
    assert visible(text.replace("\n", "")) == text.replace("\n", "")
