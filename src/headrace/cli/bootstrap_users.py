"""Users and rules of a cluster that has never been started: `user add --data` and `up --secure`."""

import os
import time
from collections.abc import Iterable
from pathlib import Path

import click

from headrace.machines.metadata.errors import BadMetadata
from headrace.machines.metadata.security_image import credential_record, rule_record
from headrace.machines.security import scram
from headrace.machines.security.acl_rules import AclRule
from headrace.node.bootstrap import BOOTSTRAP_FILE, has_started, read_bootstrap, write_bootstrap
from headrace.protocol.metadata_records import AccessControlEntryRecord, UserScramCredentialRecord
from headrace.server.disk import RealDisk
from headrace.server.lock import DirectoryInUse, DirectoryLock


class Started(click.ClickException):
    """A node has used the directory."""


class BootstrapUsers:
    """The users in the bootstrap file of a directory, which is locked meanwhile.

    The directory is a log directory of a node (that of the metadata log, if there are several), or the
    `--data` of `headrace up`, which gives the file to its nodes.
    """

    def __init__(self, directory: Path) -> None:
        """Started: it is too late."""
        _check_not_started(directory)  # before anything is written there
        try:
            self._lock = DirectoryLock(str(directory))
        except DirectoryInUse as error:
            raise Started(
                f"{directory} is in use by process {error.holder}. Use `headrace user add` without --data."
            ) from None
        self._disk = RealDisk(str(directory))
        try:
            _check_not_started(directory)
            self._records = read_bootstrap(self._disk)
        except BadMetadata as error:
            self._lock.release()
            raise click.ClickException(f"{directory}: {error}.") from error
        except BaseException:
            self._lock.release()
            raise

    def __enter__(self) -> "BootstrapUsers":
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def has(self, name: str) -> bool:
        return any(isinstance(one, UserScramCredentialRecord) and one.name == name for one in self._records)

    def put(self, name: str, password: str, mechanisms: Iterable[str], iterations: int) -> None:
        """In the place of a user that is there."""
        self._records = [
            one for one in self._records if not isinstance(one, UserScramCredentialRecord) or one.name != name
        ]
        for mechanism in dict.fromkeys(mechanisms):
            known = scram.MECHANISMS[mechanism]
            salt = os.urandom(scram.SALT_BYTES)
            credential = scram.credential_from_password(known, password, salt, iterations)
            self._records.append(credential_record(name, known.id, credential))

    def allow(self, rule: AclRule) -> None:
        """A rule that is there already stays."""
        known = [one for one in self._records if isinstance(one, AccessControlEntryRecord)]
        if not any(rule_record(one.id, rule) == one for one in known):
            self._records.append(rule_record(os.urandom(16), rule))

    def save(self) -> None:
        """Replaces the file: a crash leaves the old one or the new one."""
        previous = os.umask(0o077)  # whoever reads the file can try passwords
        try:
            write_bootstrap(self._disk, self._records, time.time_ns() // 1_000_000)
        finally:
            os.umask(previous)


def _check_not_started(directory: Path) -> None:
    for each in (directory, *node_directories(directory)):
        if each.is_dir() and has_started(RealDisk(str(each))):
            raise Started(
                f"{each} has been started, and a cluster reads these users only at its first start. "
                "Start it, and use `headrace user add` without --data."
            )


def node_directories(directory: Path) -> list[Path]:
    """The log directories in a `--data` of `headrace up`."""
    return sorted(path / "data" for path in directory.glob("node-*") if path.is_dir())


def hand_over(directory: Path, log_directory: Path) -> None:
    """Gives the users in a `--data` of `headrace up` to a node that has never been started."""
    try:
        data = (directory / BOOTSTRAP_FILE).read_bytes()
    except FileNotFoundError:
        return
    if log_directory.is_dir() and has_started(RealDisk(str(log_directory))):
        return
    log_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = log_directory / f"{BOOTSTRAP_FILE}.tmp"
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.rename(log_directory / BOOTSTRAP_FILE)
