"""CRC-32C, from the crc32c package without the rest of it.

That package asks importlib.metadata for its own version when it is imported, which loads the standard
library's e-mail and zip modules: some 60 ms of a start that has 400. So its extension module is loaded
directly; where the package is built otherwise, it is imported as usual.
"""

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Protocol


class Checksum(Protocol):
    def __call__(self, data: bytes | bytearray | memoryview, so_far: int = 0, /) -> int: ...


def _load() -> Checksum:
    package = PathFinder.find_spec("crc32c")
    extension = None
    if package is not None:
        extension = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if extension is None or extension.loader is None:
        import crc32c as whole_package

        return whole_package.crc32c
    module = module_from_spec(extension)
    extension.loader.exec_module(module)
    function: Checksum = module.crc32c
    return function


crc32c = _load()
