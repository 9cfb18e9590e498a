"""A node that cannot start says why in one line and leaves with 1; nothing on disk has changed."""

import subprocess
import sys
from pathlib import Path

from headrace.storage.checkpoints import META_PROPERTIES


def start(directory: Path, node_id: int) -> subprocess.CompletedProcess[str]:
    config = directory / "server.properties"
    config.write_text(
        f"node.id={node_id}\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={directory / 'data'}\n"
    )
    return subprocess.run(
        [sys.executable, "-m", "headrace.server", str(config)], capture_output=True, text=True, timeout=60
    )


def test_a_directory_of_another_node(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / META_PROPERTIES).write_text(
        "version=1\ncluster.id=x\nnode.id=7\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n"
    )
    ended = start(tmp_path, node_id=1)
    assert ended.returncode == 1
    assert "belongs to node.id '7', not '1'" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert [entry.name for entry in data.iterdir() if not entry.name.startswith(".")] == [META_PROPERTIES]


def test_partitions_without_their_metadata(tmp_path: Path) -> None:
    (tmp_path / "data" / "orders-0").mkdir(parents=True)
    ended = start(tmp_path, node_id=1)
    assert ended.returncode == 1
    assert "__cluster_metadata-0" in ended.stderr
    assert (tmp_path / "data" / "orders-0").is_dir()
