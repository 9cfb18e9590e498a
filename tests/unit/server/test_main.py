"""`python -m headrace.server`: exit codes and messages before there is a node."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.server.__main__ import main


@pytest.mark.parametrize(
    "arguments",
    [[], ["a", "b"], ["a", "--nonsense"], ["a", "--log-level", "loud"], ["a", "--log-format", "xml"]],
)
def test_wrong_use(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "usage: python -m headrace.server CONFIG" in capsys.readouterr().err


def test_settings_that_cannot_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "server.properties"
    path.write_text("node.id=1\nlog.retention.hoors=1\nlisteners=PLAINTEXT://no.such.host.invalid:0\n")
    assert main([str(path), "--set", f"log.dirs={tmp_path}"]) == 1
    output = capsys.readouterr()
    assert "did you mean log.retention.hours?" in output.err
    assert "cannot listen on PLAINTEXT://no.such.host.invalid:0" in output.err
    assert output.out == ""


@pytest.mark.parametrize("promise", ["authorizer.class.name=X", "super.users=User:a", "listeners=SSL://:0"])
def test_security_that_is_not_there_keeps_a_node_from_starting(
    promise: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "server.properties"
    path.write_text(f"node.id=1\n{promise}\nlog.dirs={tmp_path}/data\n")
    assert main([str(path)]) == 1
    output = capsys.readouterr()
    assert f'cannot_start reason="{path}:2: {promise.partition("=")[0]}' in output.err
    assert output.out == ""
    assert not (tmp_path / "data").exists()


def test_a_missing_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none.toml"), "--log-format", "json"]) == 1
    assert '"event": "cannot_start"' in capsys.readouterr().err


def test_a_log_directory_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("in the way")
    path = tmp_path / "server.properties"
    path.write_text(f"node.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path}/file/data\n")
    assert main([str(path)]) == 1
    output = capsys.readouterr().err
    assert "cannot_start" in output
    assert f"{tmp_path}/file" in output
    assert "Traceback" not in output
