"""Which jobs wait for a disk, which compute, and for which somebody waits: threads are chosen by it."""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages

import headrace.node
import headrace.storage


def kinds() -> dict[str, str]:
    """Of all jobs of storage and node, whose kind does not depend on what they are about."""
    found = {}
    for package in (headrace.storage, headrace.node):
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            for name, each in vars(import_module(module.name)).items():
                kind = vars(each).get("kind") if isinstance(each, type) else None
                if isinstance(kind, property) and kind.fget is not None and each.__module__ == module.name:
                    try:
                        found[name] = kind.fget(None).name
                    except AttributeError:
                        continue
    return found


def test_every_job_is_of_its_kind() -> None:
    assert kinds() == {
        "CheckpointJob": "IO",
        "CleanJob": "CPU",
        "FlushJob": "IO",
        "LookJob": "PROMPT",
        "MakeCredential": "PATIENT",
        "NextSegmentJob": "IO",
        "PasswordCheck": "PATIENT",
        "ReadJob": "IO",
        "RecompressJob": "CPU",
        "ReleaseJob": "IO",
        "RemoveDirectoryJob": "IO",
        "RemoveJob": "IO",
        "ValidateBatchJob": "PROMPT",
        "WriteJob": "IO",
    }
