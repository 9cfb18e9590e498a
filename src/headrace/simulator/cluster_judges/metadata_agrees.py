"""Nodes with the same committed offset have the same metadata, and that offset never falls in a process."""

from headrace.machines.metadata.snapshot import image_hash
from headrace.node.node import Node
from headrace.simulator.history import Violation
from headrace.simulator.host import Host
from headrace.simulator.node_changes import Changes

LOOKS_BETWEEN = 7  # of the same node: the hash of an image takes long


class MetadataAgrees:
    name = "metadata_agrees"

    def __init__(self) -> None:
        self._hashes: dict[int, tuple[str, int]] = {}  # by committed offset: hash, and whose it was
        self._last: dict[int, tuple[Node, int]] = {}  # by node: its process, and its committed offset
        self._looks = 0

    def look(self, host: Host, node: Node, changes: Changes, /) -> None:
        metadata = node.controller.metadata
        offset = metadata.committed_offset
        process, before = self._last.get(host.id, (None, 0))
        if process is node and offset < before:
            raise Violation(f"its metadata are committed up to {offset}, and were up to {before}")
        self._last[host.id] = (node, offset)
        self._looks += 1
        if (process is node and offset == before) or self._looks % LOOKS_BETWEEN:
            return
        text = image_hash(metadata.image)
        known, whose = self._hashes.setdefault(offset, (text, host.id))
        if known != text:
            raise Violation(f"its metadata at offset {offset} differ from those of node {whose}")
