"""Disk in memory that models what a killed process and what a lost host leave behind.

Each file keeps its live bytes and remembers how many of them were synced; each directory keeps its live and
its durable names, and the disk keeps the changes between the two in order. `crash("killed")` gives all that
was written; `crash("lost")` what was synced, plus a random part of the rest: a prefix of
a file's unsynced bytes, maybe with a hole of zeros where a sector was not written, and some of the unsynced
changes of names. A rename survives whole or not at all, and never without the changes of the same file or
name before it.
"""

import errno
import os
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Literal

from headrace.base.randomness import Randomness

CrashKind = Literal["killed", "lost"]

SECTOR_BYTES = 512  # what a device writes whole; a torn write loses multiples of it


_message = cache(os.strerror)  # a node that starts asks for many files that are not there


def _failure(code: int, path: str) -> OSError:
    return OSError(code, _message(code), path)


class _Directory:
    __slots__ = ("durable", "entries", "name", "parent")

    def __init__(self, parent: "_Directory | None", name: str) -> None:
        self.parent = parent
        self.name = name
        self.entries: dict[str, _Directory | _Content] = {}
        self.durable: dict[str, _Directory | _Content] = {}


class _Content:
    """A file's bytes, whatever its name is at the moment.

    The durable content is `live[:synced] + cut`: `cut` is what an unsynced truncate took from synced bytes.
    """

    __slots__ = ("cut", "is_shared", "live", "name", "parent", "synced")

    def __init__(self, parent: _Directory, name: str) -> None:
        self.parent = parent
        self.name = name
        self.live = bytearray()
        self.synced = 0
        self.cut = b""
        self.is_shared = False  # with a copy of the disk: to be copied before it is changed

    def own(self) -> bytearray:
        if self.is_shared:
            self.live = bytearray(self.live)
            self.is_shared = False
        return self.live

    def truncate(self, size: int) -> None:
        live = self.own()
        if size < self.synced:
            self.cut = bytes(live[size : self.synced]) + self.cut
            self.synced = size
        if size <= len(live):
            del live[size:]
        else:
            live.extend(bytes(size - len(live)))

    def sync(self) -> None:
        self.synced = len(self.live)
        self.cut = b""

    def survivor(self, rng: Randomness) -> bytearray:
        """What a lost host finds of it: at least all that was synced, as it was synced."""
        if self.cut and rng.randrange(2):
            return self.live[: self.synced] + self.cut
        unsynced = len(self.live) - self.synced
        kept = self.synced + rng.randrange(unsynced + 1)
        survived = self.live[:kept]
        if kept > self.synced and rng.randrange(4) == 0:  # the size was written, a sector was not
            start = self.synced + rng.randrange(kept - self.synced)
            end = min(kept, start + SECTOR_BYTES)
            survived[start:end] = bytes(end - start)
        return survived


_Node = _Directory | _Content


class _Change:
    """One unsynced change of names; `subjects` are what it moves, and it survives or is lost with them."""

    __slots__ = ("edits", "subjects")

    def __init__(
        self, edits: tuple[tuple[_Directory, str, _Node | None], ...], subjects: tuple[_Node, ...]
    ) -> None:
        self.edits = edits
        self.subjects = subjects

    def touches(self, directory: _Directory) -> bool:
        # one edit, or the two of a rename
        return self.edits[0][0] is directory or self.edits[-1][0] is directory

    def keys(self) -> set[object]:
        """Changes that share a key depend on each other in their order."""
        keys: set[object] = set(self.subjects)
        for directory, name, _ in self.edits:
            keys.add((directory, name))
        return keys

    def make_durable(self) -> None:
        for directory, name, node in self.edits:
            if node is None:
                directory.durable.pop(name, None)
            else:
                directory.durable[name] = node


class MemoryFile:
    """An open file: it follows its content through renames, and keeps it after a removal."""

    __slots__ = ("_content", "_is_closed")

    def __init__(self, content: _Content) -> None:
        self._content = content
        self._is_closed = False

    @property
    def path(self) -> str:
        return _path_of(self._content)

    def append(self, data: bytes | bytearray | memoryview, /) -> None:
        self._opened().own().extend(data)

    def read(self, position: int, size: int, /) -> bytes:
        return bytes(memoryview(self._opened().live)[position : position + size])

    def truncate(self, size: int, /) -> None:
        self._opened().truncate(size)

    def size(self) -> int:
        return len(self._opened().live)

    def sync(self) -> None:
        self._opened().sync()

    def close(self) -> None:
        self._is_closed = True

    def _opened(self) -> _Content:
        if self._is_closed:
            raise _failure(errno.EBADF, self.path)
        return self._content


class MemoryDisk:
    def __init__(self, *, free_bytes: int = 1 << 40) -> None:
        self._root = _Directory(None, "")
        self._changes: list[_Change] = []
        self._free_bytes = free_bytes
        self._found: dict[str, _Directory] = {"": self._root}  # by path, until a directory moves

    # --- the Disk protocol ---------------------------------------------------------------------------------

    def open(self, path: str, /, *, create: bool = False) -> MemoryFile:
        directory, name = self._place(path)
        node = directory.entries.get(name)
        if node is None:
            if not create:
                raise _failure(errno.ENOENT, path)
            node = _Content(directory, name)
            self._change(((directory, name, node),), (node,))
        if isinstance(node, _Directory):
            raise _failure(errno.EISDIR, path)
        return MemoryFile(node)

    def list(self, path: str, /) -> list[str]:
        return sorted(self._directory(path).entries)

    def exists(self, path: str, /) -> bool:
        return self._find(path) is not None

    def make_dir(self, path: str, /) -> None:
        directory = self._root
        for name in _names(path):
            node = directory.entries.get(name)
            if node is None:
                node = _Directory(directory, name)
                self._change(((directory, name, node),), (node,))
            elif not isinstance(node, _Directory):
                raise _failure(errno.ENOTDIR, path)
            directory = node

    def rename(self, old: str, new: str, /) -> None:
        source, old_name = self._place(old)
        node = source.entries.get(old_name)
        if node is None:
            raise _failure(errno.ENOENT, old)
        target, new_name = self._place(new)
        replaced = target.entries.get(new_name)
        if replaced is node:
            return
        if isinstance(replaced, _Directory):
            if not isinstance(node, _Directory):
                raise _failure(errno.EISDIR, new)
            if replaced.entries:
                raise _failure(errno.ENOTEMPTY, new)
        elif replaced is not None and isinstance(node, _Directory):
            raise _failure(errno.ENOTDIR, new)
        if isinstance(node, _Directory) and _is_within(target, node):
            raise _failure(errno.EINVAL, new)
        subjects = (node,) if replaced is None else (node, replaced)
        self._change(((source, old_name, None), (target, new_name, node)), subjects)
        node.parent, node.name = target, new_name
        if isinstance(node, _Directory):
            self._found = {"": self._root}

    def remove(self, path: str, /) -> None:
        directory, name = self._place(path)
        node = directory.entries.get(name)
        if node is None:
            raise _failure(errno.ENOENT, path)
        if isinstance(node, _Directory):
            if node.entries:
                raise _failure(errno.ENOTEMPTY, path)
            self._found = {"": self._root}
        self._change(((directory, name, None),), (node,))

    def sync_dir(self, path: str, /) -> None:
        directory = self._directory(path)
        if all(change.touches(directory) for change in self._changes):
            for change in self._changes:
                change.make_durable()
            self._changes = []
            return
        needed: set[object] = set()
        durable: list[_Change] = []
        pending: list[_Change] = []
        for change in reversed(self._changes):
            keys = change.keys()
            if change.touches(directory) or not needed.isdisjoint(keys):
                needed |= keys
                durable.append(change)
            else:
                pending.append(change)
        for change in reversed(durable):
            change.make_durable()
        self._changes = pending[::-1]

    def free_bytes(self) -> int:
        return self._free_bytes

    def total_bytes(self) -> int:
        return self._free_bytes

    # --- what tests and the simulator ask of it ------------------------------------------------------------

    def clone(self) -> "MemoryDisk":
        """An independent copy, open files left behind; bytes are shared until one side changes them."""
        twins: dict[int, _Node] = {}

        def twin_of(node: _Node) -> _Node:
            known = twins.get(id(node))
            if known is not None:
                return known
            if isinstance(node, _Content):
                content = _Content(self._root, node.name)
                content.live, content.synced, content.cut = node.live, node.synced, node.cut
                content.is_shared = node.is_shared = True
                twins[id(node)] = content
                return content
            directory = _Directory(None, node.name)
            twins[id(node)] = directory
            directory.entries = {name: twin_of(entry) for name, entry in node.entries.items()}
            directory.durable = {name: twin_of(entry) for name, entry in node.durable.items()}
            return directory

        copy = MemoryDisk(free_bytes=self._free_bytes)
        root = twin_of(self._root)
        assert isinstance(root, _Directory)
        copy._root = root
        copy._found = {"": root}
        copy._changes = [
            _Change(
                tuple(
                    (_as_directory(twin_of(directory)), name, None if node is None else twin_of(node))
                    for directory, name, node in change.edits
                ),
                tuple(twin_of(node) for node in change.subjects),
            )
            for change in self._changes
        ]
        _adopt(root)
        return copy

    def crash(self, kind: CrashKind, rng: Randomness | None = None) -> "MemoryDisk":
        """The disk as the next start finds it; this one stays as it is, with its open files."""
        after = self.clone()
        if kind == "killed":
            return after
        assert rng is not None, "a lost host loses a random part"
        lost: set[object] = set()
        for change in after._changes:
            keys = change.keys()
            if lost.isdisjoint(keys) and rng.randrange(2):
                change.make_durable()
            else:
                lost |= keys
        after._changes = []
        after._settle(after._root, rng)
        _adopt(after._root)
        return after

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Every file with its bytes, by path."""
        yield from _walk(self._root, "")

    def durable(self, path: str) -> bytes:
        """The bytes of a file that are sure to survive the loss of the host."""
        node: _Node | None = self._root
        for name in _names(path):
            node = node.durable.get(name) if isinstance(node, _Directory) else None
        return bytes(memoryview(node.live)[: node.synced]) if isinstance(node, _Content) else b""

    def flip(self, path: str, position: int, mask: int) -> None:
        """Damage on disk: flip the bits of `mask` in one byte."""
        node = self._find(path)
        if not isinstance(node, _Content):
            raise _failure(errno.ENOENT, path)
        node.own()[position] ^= mask

    # --- inside --------------------------------------------------------------------------------------------

    def _settle(self, directory: _Directory, rng: Randomness) -> None:
        directory.entries = dict(directory.durable)
        for name in sorted(directory.entries):
            node = directory.entries[name]
            if isinstance(node, _Directory):
                self._settle(node, rng)
            else:
                node.live = node.survivor(rng)
                node.is_shared = False
                node.sync()

    def _change(
        self, edits: tuple[tuple[_Directory, str, _Node | None], ...], subjects: tuple[_Node, ...]
    ) -> None:
        for directory, name, node in edits:
            if node is None:
                del directory.entries[name]
            else:
                directory.entries[name] = node
        self._changes.append(_Change(edits, subjects))

    def _find(self, path: str) -> _Node | None:
        node: _Node | None = self._root
        if not path:
            return node
        for name in _names(path):
            if not isinstance(node, _Directory):
                return None
            node = node.entries.get(name)
        return node

    def _directory(self, path: str) -> _Directory:
        found = self._found.get(path)
        if found is not None:
            return found
        node = self._find(path)
        if node is None:
            raise _failure(errno.ENOENT, path)
        if not isinstance(node, _Directory):
            raise _failure(errno.ENOTDIR, path)
        self._found[path] = node
        return node

    def _place(self, path: str) -> tuple[_Directory, str]:
        parent, _, name = path.rpartition("/")
        if not name:
            raise _failure(errno.EISDIR, path)
        return self._found.get(parent) or self._directory(parent), name


@lru_cache(1024)  # a node opens the same paths again and again
def _names(path: str) -> tuple[str, ...]:
    return tuple(name for name in path.split("/") if name)


def _path_of(node: _Node) -> str:
    names: list[str] = []
    step: _Node | None = node
    while step is not None and step.parent is not None:
        names.append(step.name)
        step = step.parent
    return "/".join(reversed(names))


def _is_within(directory: _Directory | None, ancestor: _Directory) -> bool:
    while directory is not None:
        if directory is ancestor:
            return True
        directory = directory.parent
    return False


def _as_directory(node: _Node) -> _Directory:
    assert isinstance(node, _Directory)
    return node


def _adopt(directory: _Directory) -> None:
    """Set parents and names below a directory to what its entries say."""
    for name, node in directory.entries.items():
        node.parent, node.name = directory, name
        if isinstance(node, _Directory):
            _adopt(node)


def _walk(directory: _Directory, prefix: str) -> Iterator[tuple[str, bytes]]:
    for name in sorted(directory.entries):
        node = directory.entries[name]
        if isinstance(node, _Directory):
            yield from _walk(node, f"{prefix}{name}/")
        else:
            yield prefix + name, bytes(node.live)
