"""Debian's PostgreSQL, fetched if it is not there, as a server of its own with nothing in it."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.fetching import alone, install

WAIT_S = 60


@contextmanager
def postgres() -> Iterator[str]:
    """Its address; the server refuses to run as root, and whoever it runs as must reach its directory."""
    programs = _programs()
    user = pwd.getpwnam("postgres") if os.getuid() == 0 else pwd.getpwuid(os.getuid())
    with (
        tempfile.TemporaryDirectory(prefix="headrace-postgresql-") as place,
        socket.create_server(("127.0.0.1", 0)) as free,
    ):
        shutil.chown(place, user.pw_uid, user.pw_gid)
        port = free.getsockname()[1]
        free.close()

        def run(program: str, *arguments: str) -> None:
            command = [str(programs / program), "-D", f"{place}/data", *arguments]
            subprocess.run(
                command,
                check=True,
                timeout=WAIT_S,
                cwd=place,
                user=user.pw_uid,
                group=user.pw_gid,
                stdout=subprocess.DEVNULL,
            )

        run("initdb", "-U", "headrace", "-A", "trust", "--no-sync")
        options = f"-p {port} -h 127.0.0.1 -k {place} -F"
        run("pg_ctl", "-w", "-l", f"{place}/log", "-o", options, "start")
        try:
            yield f"postgresql://headrace@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "-w", "-m", "immediate", "stop")


def _programs() -> Path:
    """Where Debian puts the server's programs; they are not on the path."""
    place = Path("/usr/lib/postgresql")
    with alone():
        if not list(place.glob("*/bin/initdb")):
            install("postgresql")
    return max(place.glob("*/bin"))
