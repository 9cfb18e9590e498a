"""Whether the record codec runs compiled, and the one line that an operator should see when it does not."""

from importlib.util import module_from_spec, spec_from_file_location
from logging import Logger
from pathlib import Path
from types import ModuleType
from typing import Final

from headrace.records import _codec

COMPILED: Final = not _codec.__file__.endswith(".py")


def warn_if_interpreted(logger: Logger) -> None:
    """For the start of a process: a library that is merely imported says nothing."""
    if not COMPILED:
        logger.warning(
            "record codec runs interpreted: opening batches is several times slower; "
            "install a C compiler and reinstall headrace to compile it"
        )


def interpreted_codec() -> ModuleType:
    """The codec's source run as plain Python, whether or not a compiled one exists: to compare the two."""
    spec = spec_from_file_location(
        "headrace.records._codec_interpreted", Path(__file__).with_name("_codec.py")
    )
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
