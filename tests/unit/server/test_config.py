"""Settings files in both formats say the same, and what is wrong with them is said with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.server.config import WrongSettings, read_settings

PROPERTIES = r"""
# Kafka's own way
! to comment
node.id=1
process.roles = broker,controller
listeners: PLAINTEXT://127.0.0.1:0
log.dirs=/data/one,\
         /data/two
  log.retention.hours 24
auto.create.topics.enable=false
broker.rack=caf\u00e9 \= x
"""

TOML = """
process.roles = ["broker", "controller"]
listeners = "PLAINTEXT://127.0.0.1:0"
log.dirs = ["/data/one", "/data/two"]
[node]
id = 1
[log.retention]
hours = 24
[auto.create.topics]
enable = false
[broker]
rack = "café = x"
"""


def written(directory: Path, name: str, text: str) -> Path:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return path


def test_both_formats_say_the_same(tmp_path: Path) -> None:
    properties = read_settings(written(tmp_path, "server.properties", PROPERTIES))
    toml = read_settings(written(tmp_path, "node.toml", TOML))
    assert properties.settings == toml.settings
    assert properties.warnings == toml.warnings == []
    assert properties.settings.log_dirs == ("/data/one", "/data/two")
    assert properties.settings.texts["log.retention.hours"] == "24"
    assert properties.settings.broker_rack == "café = x"
    assert not properties.settings.auto_create_topics_enable


def test_overrides_come_last(tmp_path: Path) -> None:
    path = written(tmp_path, "server.properties", PROPERTIES)
    assert read_settings(path, {"node.id": "7"}).settings.node_id == 7


def test_what_is_wrong_with_an_override_is_said_of_it(tmp_path: Path) -> None:
    path = written(tmp_path, "server.properties", PROPERTIES)
    with pytest.raises(WrongSettings, match=r"^--set log.retention.hours: Invalid value soon"):
        read_settings(path, {"log.retention.hours": "soon"})
    with pytest.raises(WrongSettings, match=r"^--set super.users=User:admin: without an authorizer"):
        read_settings(path, {"super.users": "User:admin"})
    warnings = read_settings(path, {"num.partitons": "1"}).warnings
    assert warnings == ["--set num.partitons: unknown setting num.partitons; did you mean num.partitions?"]


def test_the_quorum_may_be_named_by_the_name_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "kafka-1.example.org")
    combined = (
        "node.id=1\nlisteners=PLAINTEXT://:9092,CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER\n"
    )
    for host in ("kafka-1", "kafka-1.example.org", "localhost"):
        text = combined + f"controller.quorum.bootstrap.servers={host}:9093\n"
        assert read_settings(written(tmp_path, "server.properties", text)).warnings == []
    text = combined + "controller.quorum.bootstrap.servers=kafka-2:9093\n"
    with pytest.raises(WrongSettings, match=r":4: .*kafka-2:9093 is not a controller listener"):
        read_settings(written(tmp_path, "server.properties", text))


@pytest.mark.parametrize("name", ["a.properties", "a.toml", "a.conf"])
def test_unknown_keys_are_warned_of(tmp_path: Path, name: str) -> None:
    lines = ["node.id = 1", "log.retention.hoors = 3", "sasl.something.own = 1"]
    path = written(tmp_path, name, "\n".join(lines))
    warnings = read_settings(path).warnings
    assert warnings[0] == (
        f"{path}:2: unknown setting log.retention.hoors; did you mean log.retention.hours?"
    )


@pytest.mark.parametrize(
    ("name", "text", "where"),
    [
        ("a.properties", "node.id=1\nlog.segment.bytes=lots\n", ":2: "),
        ("a.toml", "node.id = 1\n[log]\nsegment.bytes = 'lots'\n", ":3: "),
        ("a.toml", "node.id = = 1\n", ":1: "),
        ("a.toml", "node.id = {a = 1979-05-27}\n", "node.id.a must be"),
        ("a.toml", "node.id = 1\n'node.id' = 2\n", "node.id is set twice"),
        ("a.properties", "node.id=1\nlog.dir=x\nlisteners=nonsense\n", ":3: "),
        ("a.properties", "node.id=1\nlistener.security.protocol.map=X:SSL\nlisteners=X://:1\n", ":3: "),
        ("a.properties", "node.id=1\n\ncontroller.quorum.voters=2@there:9093\n", ":3: "),
        ("a.properties", "= 3\n", ":1: the line has a value without a key"),
        ("a.properties", "broker.rack=\\u12\n", ":1: \\u12 is not a character"),
        ("a.properties", "process.roles=broker\n", "node.id"),
    ],
)
def test_errors_say_where(tmp_path: Path, name: str, text: str, where: str) -> None:
    path = written(tmp_path, name, text)
    with pytest.raises(WrongSettings) as caught:
        read_settings(path)
    assert str(caught.value).startswith(str(path))
    assert where in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(WrongSettings, match="No such file"):
        read_settings(tmp_path / "missing.toml")
    binary = tmp_path / "binary.properties"
    binary.write_bytes(b"node.id=\xff\xfe")
    with pytest.raises(WrongSettings, match="not UTF-8"):
        read_settings(binary)


def test_a_continuation_at_the_end_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "a.properties", "node.id=1\nbroker.rack=x\\")
    assert read_settings(path).settings.broker_rack == "x"
