"""Builds the one compiled module where a compiler is at hand; without one it runs interpreted."""

from setuptools import Extension, setup

SOURCES = ["src/headrace/records/_codec.py"]


def extensions() -> list[Extension]:
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    modules = [
        Extension(
            source.removeprefix("src/").removesuffix(".py").replace("/", "."),
            [source],
            extra_compile_args=["-O3"],
            optional=True,
        )
        for source in SOURCES
    ]
    return list(cythonize(modules, language_level="3str", build_dir="build/cython"))


setup(ext_modules=extensions())
