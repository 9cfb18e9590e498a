"""Builds the compiled modules where a compiler is at hand; without one they run interpreted."""

import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCES = [
    "src/headrace/records/_codec.py",
    "src/headrace/records/_messages.py",
    "src/headrace/records/_columns.py",
    "src/headrace/protocol/_flat_structs.py",
    "src/headrace/protocol/_offset_commits.py",
    "src/headrace/protocol/_transaction_states.py",
    "src/headrace/protocol/_sink_attempts.py",
    "src/headrace/client/producer/_batch.py",
    "src/headrace/client/producer/_source_column.py",
    "src/headrace/client/producer/_accumulator.py",
    "src/headrace/client/producer/_appender.py",
]
if sys.platform == "linux":  # it needs epoll; elsewhere, asyncio's transports do its work
    SOURCES.append("src/headrace/server/_core.pyx")


def extensions() -> list[Extension]:
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    modules = [
        Extension(
            source.removeprefix("src/").rpartition(".")[0].replace("/", "."),
            [source],
            extra_compile_args=["-O3", "-g0"],
        )
        for source in SOURCES
    ]
    compiled: list[Extension] = cythonize(modules, language_level="3str", build_dir="build/cython")
    for module in compiled:
        module.optional = True  # here, because cythonize forgets it
    return compiled


class BuildOrInterpret(build_ext):
    """All modules are compiled, or none: they reach into each other, and a form does not know the other's.

    A failed build leaves no older binary behind, which would hide the source that was to be compiled.
    """

    has_failed = False

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception:
            self.has_failed = True
            raise

    def build_extensions(self) -> None:
        super().build_extensions()
        if self.has_failed:
            for ext in self.extensions:
                built = Path(self.get_ext_fullpath(ext.name))
                beside_source = Path("src", *ext.name.split(".")[:-1], built.name)
                built.unlink(missing_ok=True)
                beside_source.unlink(missing_ok=True)


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildOrInterpret})
