"""A settings file with anything in it: it is taken, or refused with a sentence that names one of its keys."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.machines.configs.definition import broker_config_keys
from headrace.server.config import SettingsFile, WrongSettings, read_settings

KEYS = sorted(broker_config_keys())
ABOUT_PLACES = [
    "advertised.listeners",
    "controller.listener.names",
    "controller.quorum.bootstrap.servers",
    "controller.quorum.voters",
    "inter.broker.listener.name",
    "listener.security.protocol.map",
    "listeners",
    "log.dir",
    "log.dirs",
    "max.connections.per.ip.overrides",
    "metadata.log.dir",
    "node.id",
    "process.roles",
]
VALUES = st.one_of(
    st.sampled_from(
        [
            "",
            " ",
            ",",
            "0",
            "-1",
            "1",
            "9" * 30,
            "9" * 5000,
            "true",
            "x",
            "a:b",
            "1@localhost:9093",
            "²@x:1",
            "localhost:9093",
            "PLAINTEXT://:0",
            "PLAINTEXT://:1,CONTROLLER://:2",
            "CONTROLLER",
            "SSL://[::1]:1",
            "A:PLAINTEXT",
            "broker",
            "broker,controller",
        ]
    ),
    st.text(
        st.characters(codec="utf-8", exclude_characters="\r\n\\\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"),
        max_size=20,
    ),
)
ENTRIES = st.dictionaries(st.one_of(st.sampled_from(ABOUT_PLACES), st.sampled_from(KEYS)), VALUES, max_size=6)


@settings(max_examples=150, deadline=None)
@given(entries=ENTRIES)
def test_a_file_is_taken_or_refused_by_one_of_its_keys(entries: dict[str, str]) -> None:
    told = read({"node.id": "1"} | entries)
    if isinstance(told, str):
        assert told
        assert len(told) < 12_000
        assert any(name in told for name in ("node.id", *entries)), told


def read(entries: dict[str, str]) -> SettingsFile | str:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "server.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in entries.items()), encoding="utf-8")
        try:
            return read_settings(path)
        except WrongSettings as error:
            return str(error)
