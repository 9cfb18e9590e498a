"""Certificates, made once, and settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness.certificates import Authority
from headrace.client.settings.configuration import Configuration
from headrace.client.settings.keys import admin_keys
from headrace.client.settings.security import Security, security_settings


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def other_authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("other"), "other")


@pytest.fixture(scope="session")
def secured() -> Callable[..., Security]:
    """Makes Security from settings."""

    def make(**given: Any) -> Security:
        made = security_settings(
            Configuration(admin_keys(), {"bootstrap_servers": "localhost:9092", **given})
        )
        assert made is not None
        return made

    return make
