"""The transcoding queue: one right manifest for each clip, while each kind of worker and the broker are
killed; broken clips become dead letters, and are done after a redrive.
"""

from __future__ import annotations

from pathlib import Path

from harness.example_programs import SETTINGS
from harness.headrace import Headrace
from harness.transcoding import Transcoding

CLIPS = 16


def test_each_clip_gets_one_manifest_whatever_is_killed(tmp_path: Path) -> None:
    with (
        Headrace(tmp_path / "broker", SETTINGS) as broker,
        Transcoding(broker, tmp_path, CLIPS, "python") as queue,
    ):
        queue.until_done(CLIPS)
        for victim in range(len(queue.PROGRAMS)):
            queue.workers.kill(victim)
        queue.until_done(CLIPS * 2)
        broker.kill()
        broker.start()
        queue.until_right()

        queue.repair_and_redrive()
        queue.until_right("--repaired")

        (tmp_path / "media" / "small" / "clip-0000.y4m").write_bytes(b"")
        assert "is not the file of the manifest" in queue.example.fails(
            "check.py", *queue.sample, "--repaired"
        )
