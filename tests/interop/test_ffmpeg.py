"""The transcoding queue with Debian's ffmpeg, which is fetched if it is not there."""

from __future__ import annotations

import shutil
from pathlib import Path

from harness.example_programs import SETTINGS
from harness.fetching import alone, install
from harness.headrace import Headrace
from harness.transcoding import Transcoding

CLIPS = 6


def test_clips_become_three_videos_each(tmp_path: Path) -> None:
    with alone():
        if shutil.which("ffmpeg") is None:
            install("ffmpeg")
    with (
        Headrace(tmp_path / "broker", SETTINGS) as broker,
        Transcoding(broker, tmp_path, CLIPS, "ffmpeg") as queue,
    ):
        queue.until_done(CLIPS)
        queue.workers.kill(queue.PROGRAMS.index("transcoder.py"))
        queue.until_right()
        queue.repair_and_redrive()
        queue.until_right("--repaired")
    videos = [path.read_bytes() for path in (tmp_path / "media").glob("*/*.mp4")]
    assert len(videos) == 3 * CLIPS
    assert all(video[4:8] == b"ftyp" for video in videos)  # what an mp4 begins with
