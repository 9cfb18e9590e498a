"""docs/security.md: its settings files are taken as they stand there, and its programs run, and it names
what there is.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import headrace
from docs.fenced import blocks_of, to_run
from harness.certificates import Authority
from harness.headrace import Headrace
from harness.kafka import free_ports
from headrace.machines.configs.definition import broker_config_keys
from headrace.node.node_security import to_brokers, to_controllers
from headrace.node.settings import Settings

NAME = "docs/security.md"
PAGE = (Path(__file__).resolve().parents[2] / NAME).read_text()
LEAST = {"node.id": "1", "log.dirs": "data"}


def properties(text: str) -> dict[str, str]:
    joined = text.replace("\\\n", "")
    return dict(line.partition("=")[::2] for line in joined.splitlines() if line)


def test_every_settings_file_is_taken() -> None:
    files = [block.text for block in blocks_of(NAME) if "\nlisteners=" in f"\n{block.text}"]
    assert len(files) >= 5
    for text in files:
        settings = Settings.parse(LEAST | properties(text))
        assert all(one.security_protocol != "PLAINTEXT" for one in settings.listeners)
        if settings.quorum_voters:
            assert to_brokers(settings) is not None
            assert to_controllers(settings) is not None
        assert not settings.unknown


def test_a_program_acts_with_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's programs, one after the other, against a broker of the page's address."""
    authority = Authority(tmp_path / "authority")
    (tmp_path / "ca.pem").write_text(authority.certificate.read_text())
    monkeypatch.chdir(tmp_path)
    port, open_port = free_ports(2)
    own = Headrace(
        tmp_path / "broker",
        {
            # the plaintext one is the last: it is the one that tells whether the broker serves
            "listeners": f"SASL_SSL://127.0.0.1:{port},PLAINTEXT://127.0.0.1:{open_port}",
            "advertised.listeners": f"SASL_SSL://localhost:{port},PLAINTEXT://127.0.0.1:{open_port}",
            "ssl.keystore.location": str(authority.issue("broker").both),
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "delegation.token.secret.key": "a long random text",
        },
    )
    with own, headrace.Admin(own.bootstrap) as admin:
        admin.set_password("alice", "her password", mechanism="SCRAM-SHA-512")
        alice = {
            "bootstrap.servers": f"localhost:{port}",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": "ca.pem",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": "her password",
        }
        names: dict[str, Any] = {"settings": alice}
        for block in to_run(NAME):
            text = block.text.replace("localhost:9094", f"localhost:{port}")
            exec(compile(text, block.where, "exec"), names)
        assert names["token"].owner == "User:alice"
        place = headrace.TopicPartition("orders", 0)
        assert admin.list_offsets({place: headrace.OffsetAt.LATEST})[place].offset == 1


def test_every_setting_it_names_exists() -> None:
    of_clients = {"ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "security.protocol"}
    quoted = re.findall(r"`((?:ssl|sasl|security|connections?)\.[a-z.]+)[`=]", PAGE)
    assert len(quoted) > 8
    assert set(quoted) - set(broker_config_keys()) - of_clients == set()
