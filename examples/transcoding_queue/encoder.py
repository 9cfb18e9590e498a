"""Encodes one clip: with ffmpeg (`apt install ffmpeg`), or with some lines of Python where it is missing.

    python examples/transcoding_queue/encoder.py python clip.y4m clip-small.y4m 16 12 30

The second can only leave out pixels of uncompressed video, which is enough to see the queue at work. Run as
a program, this file sets a timer of the kernel, and then becomes the encoder: a clip that hangs is given up
after so many seconds, even if the worker that started it was killed meanwhile.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

SUFFIXES = {"ffmpeg": ".mp4", "python": ".y4m"}
HEADER_MAX = 200


class EncoderFailed(Exception):
    """The encoder ended with an error, or not at all."""


def installed() -> str:
    return "ffmpeg" if shutil.which("ffmpeg") else "python"


def encode(encoder: str, source: Path, target: Path, size: tuple[int, int], timeout_s: float) -> None:
    """The target is there whole or not at all. Encoding a clip twice gives the same file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.{os.getpid()}.part")  # two workers never write to one file
    arguments = [encoder, str(source), str(part), *map(str, size), str(timeout_s)]
    ended = subprocess.run(
        [sys.executable, "-I", "-S", __file__, *arguments], capture_output=True, check=False
    )
    if ended.returncode == -signal.SIGALRM:
        raise EncoderFailed(f"stuck: no result after {timeout_s:g} s")
    if ended.returncode != 0:
        said = ended.stderr.decode(errors="replace").strip().splitlines()
        raise EncoderFailed(f"exit code {ended.returncode}: {said[-1] if said else ''}")
    part.replace(target)


def become_ffmpeg(source: str, target: str, width: int, height: int) -> None:
    program = shutil.which("ffmpeg")
    if program is None:
        sys.exit("ffmpeg is not installed")
    quiet = ["-nostdin", "-y", "-loglevel", "error"]
    # mpeg4 is part of every ffmpeg; bit-exact output depends on the clip alone
    codec = ["-c:v", "mpeg4", "-q:v", "5", "-threads", "1", "-fflags", "+bitexact", "-flags", "+bitexact"]
    scale = ["-vf", f"scale={width}:{height}"]
    os.execv(program, [program, *quiet, "-i", source, *scale, *codec, "-f", "mp4", target])


def leave_out_pixels(source: str, target: str, width: int, height: int) -> None:
    with open(source, "rb") as read, open(target, "wb") as write:
        header = read.readline(HEADER_MAX).decode("ascii")
        fields = {word[0]: word[1:] for word in header.split()[1:]}
        if not header.startswith("YUV4MPEG2 ") or not header.endswith("\n") or "H" not in fields:
            sys.exit("not a YUV4MPEG2 file")
        old_width, old_height = int(fields["W"]), int(fields["H"])
        write.write(b"YUV4MPEG2 W%d H%d F25:1 Ip A1:1 C420jpeg\n" % (width, height))
        while read.readline(HEADER_MAX).startswith(b"FRAME"):
            write.write(b"FRAME\n")
            for divisor in (1, 2, 2):  # brightness, then two planes of colour with a quarter of the pixels
                plane = read.read(old_width * old_height // divisor**2)
                write.write(_smaller(plane, old_width // divisor, width // divisor, height // divisor))


def _smaller(plane: bytes, old_width: int, width: int, height: int) -> bytes:
    old_height = len(plane) // old_width
    rows = []
    for row in range(height):
        begin = row * old_height // height * old_width
        rows.append(plane[begin : begin + old_width][:: old_width // width])
    return b"".join(rows)


def main() -> None:
    encoder, source, target, width, height, timeout_s = sys.argv[1:]
    signal.setitimer(signal.ITIMER_REAL, float(timeout_s))  # also runs in the program that it becomes
    run = become_ffmpeg if encoder == "ffmpeg" else leave_out_pixels
    run(source, target, int(width), int(height))


if __name__ == "__main__":
    main()
