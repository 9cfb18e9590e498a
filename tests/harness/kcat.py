"""kcat of Debian: the one that is installed, or one that is fetched and unpacked under .cache, which needs no
root.
"""

from __future__ import annotations

import shutil
import subprocess

from harness.broker import CACHE
from harness.fetching import alone

PACKAGES = ("kcat", "librdkafka1", "libyajl2")
PLACE = CACHE / "kcat"
# It finds its own libraries wherever the work tree is.
START = """#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
LD_LIBRARY_PATH=$(echo "$here"/unpacked/usr/lib/*-linux-gnu) exec "$here/unpacked/usr/bin/kcat" "$@"
"""


def kcat() -> str:
    """The program's path."""
    installed = shutil.which("kcat")
    if installed is not None:
        return installed
    program = PLACE / "kcat"
    with alone():
        if not program.exists():
            _fetch()
            program.write_text(START)
            program.chmod(0o755)
    return str(program)


def _fetch() -> None:
    lists, cache = PLACE / "lists", PLACE / "cache"
    for directory in (lists / "partial", cache / "archives" / "partial"):
        directory.mkdir(parents=True, exist_ok=True)
    ours = ["-o", f"Dir::State::lists={lists}", "-o", f"Dir::Cache={cache}"]
    # the system may tidy its own cache afterwards, which only root can: that is not our failure
    subprocess.run(["apt-get", "-qq", *ours, "update"], check=False, timeout=300)
    download = ["apt-get", "-qq", *ours, "download", *PACKAGES]
    subprocess.run(download, check=True, timeout=300, cwd=PLACE)
    for package in PACKAGES:
        (file,) = PLACE.glob(f"{package}_*.deb")
        subprocess.run(["dpkg-deb", "-x", str(file), str(PLACE / "unpacked")], check=True, timeout=60)
