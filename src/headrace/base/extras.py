"""Optional libraries: which extra of Headrace brings which, and the error for one that is not installed.

`pyproject.toml` has the extras. Headrace is installed from a clone until its wheels are published; the
commands that errors and pages show change here and in the pages together, and a test compares them.
"""

import sys
from importlib import import_module
from typing import Final

# library → extra; what is not here, users bring along with the types that they hand in
EXTRAS: Final = {
    "deltalake": "lake",
    "fastavro": "schemas",
    "google.protobuf": "schemas",
    "jwt": "oauth",
    "numpy": "lake",
    "pandas": "spark",
    "pyarrow": "arrow",
    "pyiceberg": "lake",
    "pyspark": "spark",
    "yaml": "spark",
}


class MissingExtra(ImportError):
    """An optional library is needed and not installed; the message says how to install it."""


def install_command(extra: str | None = None) -> str:
    return f'pip install ".[{extra}]"' if extra else "pip install ."


def missing_text(library: str, what: str) -> str:
    """`what` is what needs it: "Avro", "poll_arrow()"."""
    extra = EXTRAS.get(library)
    name = library.rpartition(".")[2]
    if extra is None:
        return f"{what} needs {name}, which is not installed: run `pip install {name}`"
    return (
        f"{what} needs {name}, which is not installed: run `{install_command(extra)}` in a clone of Headrace"
    )


def require(library: str, what: str) -> None:
    """Raises MissingExtra unless the library can be imported."""
    if sys.modules.get(library) is not None:
        return
    try:
        import_module(library)
    except ImportError as error:
        raise MissingExtra(missing_text(library, what)) from error
