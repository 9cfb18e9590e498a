"""docs/client/security.md: its settings are taken as they stand there, and its tables name what there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from docs.fenced import reason_not_to_run, to_run
from harness.certificates import Authority
from headrace.client.settings.configuration import Configuration
from headrace.client.settings.keys import OTHER_NAMES, admin_keys
from headrace.client.settings.security import Security, security_settings

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "client" / "security.md").read_text()


def test_the_settings_of_every_block_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path / "authority")
    client = authority.issue("client")
    (tmp_path / "ca.pem").write_bytes(authority.certificate.read_bytes())
    (tmp_path / "client.pem").write_bytes(client.certificate.read_bytes())
    (tmp_path / "client.key").write_bytes(client.key.read_bytes())
    monkeypatch.chdir(tmp_path)
    made = []
    for block in to_run("docs/client/security.md"):
        if block.language == "console":
            assert all(reason_not_to_run(command) for command, _ in block.commands())
            continue
        names: dict[str, Any] = {}
        exec(block.text, names)
        made.append(security_settings(Configuration(admin_keys(), names["settings"])))
    mechanisms = [one.mechanism.name if one.mechanism else None for one in made if isinstance(one, Security)]
    assert mechanisms == [None, None, "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER", "OAUTHBEARER"]


def test_every_setting_it_names_exists() -> None:
    known = {*admin_keys(), *OTHER_NAMES}
    quoted = re.findall(r"`((?:ssl|sasl|security|enable)[._][a-z._]+)`", PAGE)
    assert len(quoted) > 25
    brokers_own = {"ssl.client.auth"}
    missing = {name for name in quoted if name.replace("_", ".") not in known} - brokers_own
    assert not missing


def test_it_names_every_setting() -> None:
    """But for those that Java's files may have without effect."""
    named = {name for name in admin_keys() if name.startswith(("ssl.", "sasl.", "security.", "enable.ssl"))}
    effective = {name for name in named if "no effect" not in admin_keys()[name].doc}
    said_elsewhere = {
        # only to say that a file is of a kind that is not read
        *(f"ssl.{store}.{part}" for store in ("keystore", "truststore") for part in ("type", "password")),
    }
    written = PAGE.replace("ssl_context", "ssl.context")
    assert {name for name in effective - said_elsewhere if name not in written} == set()
