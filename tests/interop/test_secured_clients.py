"""Every client at secured brokers, by TLS, with a certificate, with every SASL mechanism, for longer than a
session lasts, and with what is wrong: on Headrace as on Kafka 4.3.1. docs/security.md has the table.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import headrace
from harness.login_counter import Logins
from harness.wait import eventually, run_to_end
from interop.java_tools import compiled
from interop.secured_cells import AGAIN, REFUSED, UNSIGNED, WELCOME, Secured, Site, secured_site
from interop.secured_python import CLIENTS as PYTHON
from interop.secured_python import tell

HERE = Path(__file__).parent
NAMES = (*WELCOME, *AGAIN, *REFUSED)
Told = dict[str, dict[str, Any]]  # by the cell's name

CLIENTS = (*PYTHON, "Java", "franz-go", "kafkajs")
# aiokafka does not know sessions that end: it connects again.
LOGS_IN_AGAIN = tuple(client for client in CLIENTS if client != "aiokafka")


def names_of(client: str, names: tuple[str, ...] = NAMES) -> tuple[str, ...]:
    """Debian's kcat knows neither signed tokens nor sessions that end. Its SCRAM repeats a nonce: Kafka 4.3.1
    and Headrace refuse that.
    """
    if client != "kcat":
        return names
    told = tuple(name for name in names if name not in AGAIN and not name.startswith(("OAUTH", "SCRAM")))
    return (*told, UNSIGNED) if names[0] in WELCOME else told


def cases(names: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(client, name) for client in CLIENTS for name in names_of(client, names)]


# They do not read why a token is refused, and send their next request: Kafka answers that this is not the
# time for it, and Headrace ends the connection.
GOES_ON_REGARDLESS = {(client, "OAUTHBEARER refused") for client in ("aiokafka", "kafkajs")}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with secured_site(tmp_path_factory.mktemp("secured")) as made:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(create_topics, ((made, secured) for secured in made.brokers)))
        yield made


def create_topics(given: tuple[Site, Secured]) -> None:
    """And a group that has committed, so that the others find their coordinator."""
    site, secured = given
    names = [cell.topic for client in CLIENTS for cell in site.cells(secured, client, names_of(client))]
    with headrace.Admin(f"localhost:{secured.ports['PLAINTEXT']}") as admin:
        admin.create_topics(headrace.NewTopic(name, partitions=1) for name in names)
        eventually(lambda: have_leaders(admin, names), True)
        admin.alter_group_offsets("first", {headrace.TopicPartition(names[0], 0): 0})


def have_leaders(admin: headrace.Admin, topics: list[str]) -> bool:
    found = admin.describe_topics(topics).values()
    return all(one.partitions[0].leader is not None for one in found)


@pytest.fixture(scope="module")
def told(site: Site, franz: Path, modules: Path) -> Callable[[str], list[Told]]:
    """Of each client what it told at Kafka and at Headrace; all of its cells run at a time."""

    @cache
    def tell(client: str) -> list[Told]:
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(lambda secured: tell_at(client, secured), site.brokers))

    def tell_at(client: str, secured: Secured) -> Told:
        cells = site.cells(secured, client, names_of(client))
        file = str(site.write(cells, f"{client}-{secured.broker.name}"))
        commands = {
            "Java": ["java", "-Xmx512m", *site.java_options(), "-cp", compiled(), "Secured", file],
            "franz-go": [str(franz), "secured", file, "-"],
            **{name: [sys.executable, "-m", "interop.secured_python", name, file] for name in PYTHON},
            "kafkajs": ["node", str(HERE / "js" / "secured.js"), file],
        }
        environment = os.environ | {
            "NODE_PATH": str(modules),
            "KAFKAJS_NO_PARTITIONER_WARNING": "1",
            "PYTHONPATH": str(HERE.parent),
        }
        command = commands[client]
        done = run_to_end(command, env=environment)
        assert done.returncode == 0, done.stderr[-4000:]
        steps = [json.loads(line) for line in done.stdout.splitlines()]
        return {step["step"]: normalized(step["told"]) for step in steps}

    return tell


def normalized(told: dict[str, Any]) -> dict[str, Any]:
    """Without what no two runs share: ports, times, and how often it was tried."""
    if "error" not in told:
        return told
    error = str(told["error"])
    error = re.sub(r"\(after \d+ms in state \w+[^)]*\)", "", error)
    error = re.sub(r"%3\|[^|]*\|FAIL\|[^|]*\| \[thrd:[^]]*\]: ", "", error)  # of kcat
    error = re.sub(r"(?<=[:' ])\d{4,}\b", "N", error)
    return {"error": "\n".join(dict.fromkeys(line.strip() for line in error.splitlines()))}


@pytest.mark.parametrize(("client", "name"), cases(WELCOME))
def test_records_come_and_go(told: Callable[[str], list[Told]], client: str, name: str) -> None:
    kafka, ours = (one[name] for one in told(client))
    assert kafka == ours == {"echoed": 10, "committed": 10}


@pytest.mark.parametrize(("client", "name"), cases(REFUSED))
def test_refusals_are_told(told: Callable[[str], list[Told]], client: str, name: str) -> None:
    kafka, ours = (one[name] for one in told(client))
    assert "error" in kafka
    assert "error" in ours
    if name == "mTLS refused":  # OpenSSL's words for it are other ones than Java's
        assert ours["error"].split(":")[0] == kafka["error"].split(":")[0]
    elif (client, name) not in GOES_ON_REGARDLESS:
        assert ours == kafka


@pytest.mark.parametrize(("client", "name"), cases(AGAIN))
def test_sessions_end(told: Callable[[str], list[Told]], site: Site, client: str, name: str) -> None:
    """Who logs in again loses no request, and its connections stay."""
    for secured, outcomes in zip(site.brokers, told(client), strict=True):
        assert outcomes[name].get("echoed", 0) >= 10, outcomes[name]
        assert outcomes[name]["committed"] == outcomes[name]["echoed"]
        (cell,) = site.cells(secured, client, (name,))
        logins: Logins = secured.counter.logins[cell.topic]
        if client in LOGS_IN_AGAIN:
            assert max(logins.by_connection) > 1
        else:
            assert max(logins.by_connection) == 1
            assert logins.ended_by_broker > 0


def test_scram_of_kcat(site: Site) -> None:
    """librdkafka before 2.6.1 repeats a nonce. Whatever kcat is there, both brokers say the same about it."""
    kafka, ours = (
        normalized(json.loads(tell("kcat", site.cells(secured, "kcat", ("SCRAM-SHA-512",))[0]))["told"])
        for secured in site.brokers
    )
    assert ours == kafka
    assert "error" not in ours or "invalid credentials" in ours["error"]


def test_certificates_that_cannot_be_used_are_refused(site: Site) -> None:
    """At once, in the answer, as by Kafka: the change is not made."""
    key = "listener.name.tls.ssl.keystore.location"
    stranger = site.stranger.issue("other")
    broken = site.directory / "broken.pem"
    broken.write_text(site.client.key.read_text() + stranger.certificate.read_text())
    answers = []
    for secured in site.brokers:
        told: list[Any] = []
        with headrace.Admin(f"localhost:{secured.ports['PLAINTEXT']}") as admin:
            for path in (site.directory / "missing.pem", broken):
                with pytest.raises(headrace.KafkaError) as raised:
                    admin.alter_config(headrace.Resource.broker(1), {key: str(path)})
                message = str(raised.value)
                told.append((raised.value.name, "update of SSLFactory failed: " in message))
        answers.append(told)
    assert answers[0] == answers[1] == [("INVALID_REQUEST", True)] * 2
