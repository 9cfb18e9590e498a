"""Encodes one clip: with ffmpeg where it is installed (`apt install ffmpeg`), else with some lines of Python.

    python examples/transcoding_queue/encoder.py clip.y4m clip-small.y4m 16 12

The second can only leave out pixels of uncompressed video, which is enough to see the queue at work. Run as a
program it is a process of its own, like ffmpeg, so that a clip that hangs can be given up.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

HEADER_MAX = 200


class EncoderFailed(Exception):
    """The encoder ended with an error, or not at all."""


def suffix() -> str:
    return ".mp4" if shutil.which("ffmpeg") else ".y4m"


def command(source: Path, target: Path, width: int, height: int) -> list[str]:
    ffmpeg = shutil.which("ffmpeg")
    if ffmpeg is None:
        return [sys.executable, "-I", "-S", __file__, str(source), str(target), str(width), str(height)]
    scale = ["-vf", f"scale={width}:{height}"]
    quiet = ["-nostdin", "-y", "-loglevel", "error"]
    # mpeg4 is part of every ffmpeg; bit-exact output depends on the clip alone
    return [
        ffmpeg, *quiet, "-i", str(source), *scale, "-c:v", "mpeg4", "-q:v", "5", "-threads", "1",
        "-fflags", "+bitexact", "-flags", "+bitexact", "-f", "mp4", str(target),
    ]  # fmt: skip


def encode(source: Path, target: Path, width: int, height: int, timeout_s: float) -> None:
    """The target is there whole or not at all. Encoding a clip twice gives the same file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    try:
        ended = subprocess.run(
            command(source, part, width, height), capture_output=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise EncoderFailed(f"stuck: no result after {timeout_s:g} s") from error
    if ended.returncode != 0:
        said = ended.stderr.decode(errors="replace").strip().splitlines()
        raise EncoderFailed(f"exit code {ended.returncode}: {said[-1] if said else ''}")
    part.replace(target)


def scale(source: Path, target: Path, width: int, height: int) -> None:
    with source.open("rb") as read, target.open("wb") as write:
        header = read.readline(HEADER_MAX).decode("ascii")
        fields = {word[0]: word[1:] for word in header.split()[1:]}
        if not header.startswith("YUV4MPEG2 ") or not header.endswith("\n") or "H" not in fields:
            raise ValueError("not a YUV4MPEG2 file")
        old_width, old_height = int(fields["W"]), int(fields["H"])
        write.write(b"YUV4MPEG2 W%d H%d F25:1 Ip A1:1 C420jpeg\n" % (width, height))
        while read.readline(HEADER_MAX).startswith(b"FRAME"):
            write.write(b"FRAME\n")
            for divisor in (1, 2, 2):  # brightness, then two planes of colour with a quarter of the pixels
                plane = read.read(old_width * old_height // divisor**2)
                write.write(_thinned(plane, old_width // divisor, width // divisor, height // divisor))


def _thinned(plane: bytes, old_width: int, width: int, height: int) -> bytes:
    old_height = len(plane) // old_width
    rows = []
    for row in range(height):
        begin = row * old_height // height * old_width
        rows.append(plane[begin : begin + old_width][:: old_width // width])
    return b"".join(rows)


if __name__ == "__main__":
    scale(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
