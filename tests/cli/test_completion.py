"""Shell completion: names that the broker knows, keys of settings, and silence where nobody answers."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest

from cli.completing import completed
from cli.shell import COMMAND
from headrace.cli import completers
from headrace.client.threads.admin import Admin

NOWHERE = "127.0.0.1:1"


@pytest.fixture
def patient(cli_broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test machine may be slower than a finger on Tab."""
    monkeypatch.setattr(completers, "TIMEOUT_S", 60.0)
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", cli_broker.bootstrap)


@pytest.mark.usefixtures("patient")
def test_topics(topic: str) -> None:
    begun = topic[:-1]
    for words in [
        ("topic", "describe"),
        ("topic", "alter"),
        ("topic", "trim"),
        ("topic", "delete", "--yes"),
        ("produce",),
        ("consume",),
        ("redrive",),
        ("config", "get", "topic"),
        ("config", "set", "topic"),
        ("group", "reset", "readers", "--topic"),
    ]:
        assert topic in completed(*words, begun), words
    assert completed("topic", "describe", topic, topic) == [], "it is given already"
    assert completed("topic", "describe", "no-such-beginning") == []


def test_groups(topic: str, cli_broker: Any, patient: None) -> None:
    group = f"completed-{topic}"
    with Admin(cli_broker.bootstrap) as admin:
        admin.alter_group_offsets(group, {(topic, 0): 0})
    for words in [
        ("group", "describe"),
        ("group", "lag"),
        ("group", "delete"),
        ("group", "reset"),
        ("config", "get", "group"),
        ("consume", topic, "--group"),
    ]:
        assert completed(*words, "completed-") == [group], words


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("topic", "create", "t", "-c", "retention"), ["retention.bytes=", "retention.ms="]),
        (("topic", "alter", "t", "--unset", "retention"), ["retention.bytes", "retention.ms"]),
        (("config", "get", "topic", "t", "retention"), ["retention.bytes", "retention.ms"]),
        (("config", "set", "topic", "t", "retention.m"), ["retention.ms="]),
        (("config", "get", "broker", "1", "log.retention.h"), ["log.retention.hours"]),
        (("config", "set", "group", "g", "consumer.session"), ["consumer.session.timeout.ms="]),
        (("group", "list", "--state", "s"), ["Stable"]),
        (("topic", "de"), ["delete", "describe"]),
        (("comp",), ["completion"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_what_needs_no_broker(
    words: tuple[str, ...], offered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", NOWHERE)
    assert sorted(completed(*words)) == offered


def test_a_broker_that_is_not_there_is_passed_over_in_silence() -> None:
    asked = {"COMP_WORDS": "headrace topic describe o", "COMP_CWORD": "3"}
    asked |= {"_HEADRACE_COMPLETE": "bash_complete", "HEADRACE_BOOTSTRAP": NOWHERE}
    done = subprocess.run(COMMAND, env=os.environ | asked, capture_output=True, timeout=60, check=True)
    assert (done.stdout.strip(), done.stderr) == (b"", b"")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell(inside: Any, shell: str) -> None:
    assert f"_HEADRACE_COMPLETE={shell}_complete" in inside("completion", shell).out.decode()
    told = inside("completion", shell, "--json").json
    assert told["shell"] == shell
    assert f"headrace completion {shell}" in told["install"]


@pytest.mark.parametrize(
    ("shell", "word", "offered"),
    [
        ("bash", "5", ["plain,retention.ms="]),
        ("zsh", "5", ["plain", "retention.ms=", "_"]),
        ("fish", "retention.m", ["plain,retention.ms="]),
    ],
)
def test_what_each_shell_reads(shell: str, word: str, offered: list[str]) -> None:
    """The answer as its script expects it: few machines have all three shells."""
    asked = {"COMP_WORDS": "headrace topic create t -c retention.m", "COMP_CWORD": word}
    asked |= {"_HEADRACE_COMPLETE": f"{shell}_complete"}
    done = subprocess.run(
        COMMAND, env=os.environ | asked, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines() == offered


def test_bash_itself() -> None:
    """The script in a real shell; outside a key press bash has no compopt, which it says on stderr."""
    program = (
        'PATH="$1:$PATH"; eval "$(headrace completion bash)"; '
        "COMP_WORDS=(headrace topic create t -c retention.m); COMP_CWORD=5; "
        '_headrace_completion headrace; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", program, "bash", os.path.dirname(COMMAND[0])],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == ["retention.ms="]
