"""`headrace doctor`: checks whether a broker can run on this computer."""

import errno
import importlib.metadata
import importlib.util
import os
import platform
import resource
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from headrace.cli.options import json_option
from headrace.cli.strays import log_directories, strays_in
from headrace.cli.terminal import bytes_text, count_text, print_json, say, say_marked
from headrace.machines.metadata.errors import BadMetadata
from headrace.node.metadata_check import LastStop, check_metadata, epoch_max
from headrace.node.metadata_files import METADATA_DIRECTORY, METADATA_TOPIC
from headrace.records.compiled import COMPILED
from headrace.spark import prerequisites
from headrace.storage.checkpoints import META_PROPERTIES, parse_properties
from headrace.storage.errors import StorageError
from headrace.storage.log_directory import LogDirectory
from headrace.storage.open_files import OpenFiles

OPEN_FILES_WANTED = 65_536  # a partition has up to four open files, a connection one
FREE_BYTES_WANTED = 5 * 2**30  # a few segments of Kafka's default size

MARKS = {"ok": ("ok", "green"), "warning": ("warn", "yellow"), "problem": ("FAIL", "red")}


class Finding(NamedTuple):
    check: str
    state: str  # "ok", "warning" or "problem"
    found: str
    advice: str = ""


@click.command("doctor")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    default=Path("headrace-data"),
    show_default=True,
    help="Data directory to check.",
)
@click.option("--port", type=click.IntRange(1, 65535), default=9092, show_default=True, help="Port to check.")
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Settings file of a broker: check what it leaves open.",
)
@json_option
def command(data: Path, port: int, config: Path | None, as_json: bool) -> None:
    """Check Python, the compiled modules, libraries, limits, disk and port.

    With --config it also reads a broker's settings and says what they leave open: listeners without TLS,
    files with passwords that others can read, super users without a login.

    If --data has log directories already, it also checks their metadata logs and looks for stray partitions.
    The exit code is 1 if a broker cannot run here. Warnings do not change the exit code.
    """
    findings = [*examine(data, port), *(_security(config) if config is not None else ())]
    if as_json:
        print_json([finding._asdict() for finding in findings])
    else:
        for finding in findings:
            text, colour = MARKS[finding.state]
            say_marked(f"{text:>4}", colour, f"{finding.check}: {finding.found}")
            if finding.advice:
                say(f"      {finding.advice}")
    if any(finding.state == "problem" for finding in findings):
        click.get_current_context().exit(1)


def examine(data: Path, port: int) -> Iterator[Finding]:
    yield _python()
    yield _compiled_modules()
    for package, why in (("crc32c", "checksums"), ("cramjam", "compression")):
        yield _library(package, why, missing="problem")
    yield _library("uvloop", "the faster event loop; asyncio is used without it", missing="warning")
    yield _open_files()
    yield _disk(data)
    yield from _strays(data)
    yield from _metadata(data)
    yield _port(port)
    yield _spark()


def _security(config: Path) -> Iterator[Finding]:
    from headrace.node.security_advice import advice
    from headrace.server.config import WrongSettings, read_settings

    try:
        file = read_settings(config)
    except WrongSettings as error:
        yield Finding("settings", "problem", str(error))
        return
    found = [
        Finding("security", "warning", f"{one.subject}: {one.found}", one.advice)
        for one in advice(file.settings)
    ]
    for path in file.open_files:
        problem = f"{path} has passwords or keys, and every user of this computer can read it"
        found.append(Finding("security", "warning", problem, f"Run `chmod 600 {path}`."))
    for text in file.warnings:
        yield Finding("settings", "warning", text)
    yield from found or [Finding("security", "ok", f"nothing in {config} is left open")]


def _python() -> Finding:
    return Finding("Python", "ok", f"{platform.python_implementation()} {platform.python_version()}")


def _compiled_modules() -> Finding:
    if COMPILED:
        return Finding("compiled modules", "ok", "installed")
    advice = "Install a C compiler and run `pip install --force-reinstall .` in a clone of Headrace."
    found = "missing, Python's are used: clients, commits of many offsets and compaction are slower"
    return Finding("compiled modules", "warning", found, advice)


def _library(package: str, why: str, *, missing: str) -> Finding:
    if importlib.util.find_spec(package) is None:
        return Finding(package, missing, f"not installed ({why})", f"Run `pip install {package}`.")
    return Finding(package, "ok", importlib.metadata.version(package))


def _spark() -> Finding:
    """At most a warning: a broker does not need Spark."""
    if prerequisites.pyspark_problem() is not None:
        return Finding("Spark", "ok", "not installed (a broker does not need it)")
    problems = prerequisites.problems()
    if problems:
        return Finding("Spark", "warning", "cannot run here", " ".join(problems))
    return Finding("Spark", "ok", f"PySpark {importlib.metadata.version('pyspark')} with a JDK")


def _open_files() -> Finding:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= OPEN_FILES_WANTED:
        return Finding("open files", "ok", "unlimited" if hard == resource.RLIM_INFINITY else f"{hard:,}")
    advice = f"Raise the hard limit to {OPEN_FILES_WANTED:,} (ulimit -Hn, limits.conf, LimitNOFILE=)."
    return Finding("open files", "warning", f"{hard:,}", advice)


def _disk(data: Path) -> Finding:
    """Checks the nearest directory that exists: `up` creates the rest."""
    existing = data.absolute()
    while not existing.exists():
        existing = existing.parent
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        return Finding(
            "disk", "problem", f"{existing} cannot be written to", "Choose another directory with --data."
        )
    free = shutil.disk_usage(existing).free
    found = f"{bytes_text(free)} free at {existing}"
    if free < FREE_BYTES_WANTED:
        return Finding("disk", "warning", found, f"{bytes_text(FREE_BYTES_WANTED)} or more are recommended.")
    return Finding("disk", "ok", found)


def _strays(data: Path) -> Iterator[Finding]:
    """Partition directories that the metadata does not know; no finding if there are none."""
    for directory in log_directories(data):
        found = strays_in(directory)
        if found:
            yield Finding(
                "strays",
                "warning",
                f"{count_text(len(found), 'partition')} in {directory} that the metadata does not know",
                f"`headrace strays {directory}` lists, restores and removes them.",
            )


def _metadata(data: Path) -> Iterator[Finding]:
    """Whether a node would accept its metadata log: with a damaged one it does not start."""
    for directory in log_directories(data):
        if not (directory / METADATA_DIRECTORY).is_dir():
            continue
        try:
            _check_metadata_log(directory)
        except OSError as error:
            advice = "Run this command as the user of the broker."
            yield Finding("metadata", "warning", f"{error.filename}: {error.strerror}", advice)
        except (BadMetadata, StorageError) as error:
            yield Finding("metadata", "problem", f"{error}.")
        else:
            yield Finding("metadata", "ok", f"the metadata log in {directory} is intact")


def _check_metadata_log(directory: Path) -> None:
    """Raises what the start of a node would raise: the same check, with the same knowledge of crashes."""
    from headrace.server.disk import RealDisk
    from headrace.server.process import boot_id

    root = str(directory)
    disk = RealDisk(root)
    owner = parse_properties((directory / META_PROPERTIES).read_bytes())
    node_id = owner.get("node.id", "")
    found = LogDirectory.look(
        disk,
        root,
        node_id=int(node_id) if node_id.isdecimal() and len(node_id) <= 10 else -1,
        cluster_id=owner.get("cluster.id", ""),
        directory_id_if_new=bytes(16),
        boot_id=boot_id(),
        files=OpenFiles(),
    )
    stop = LastStop(
        found.trust,
        found.recovery_point(METADATA_TOPIC, 0),
        epoch_max(disk, root, METADATA_DIRECTORY),
    )
    check_metadata(disk, root, METADATA_DIRECTORY, stop)


def _port(port: int) -> Finding:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return Finding(
                    "port",
                    "warning",
                    f"{port} is taken",
                    "If that is not your broker, choose another port with --port.",
                )
            return Finding("port", "problem", f"{port}: {error.strerror}", "Choose another port with --port.")
    return Finding("port", "ok", f"{port} is free")
