"""A missing prerequisite of Spark gives one sentence that says what to do."""

import stat

import pytest

from headrace.spark.prerequisites import (
    JAVA_MIN,
    java_problem,
    java_version,
    memory_problem,
    python_problem,
)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_412"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("no such thing", None),
    ],
)
def test_versions_of_java(text, version):
    assert java_version(text) == version


def test_a_missing_jdk(tmp_path):
    said = java_problem(str(tmp_path))
    assert said == (
        f"Spark needs a JDK {JAVA_MIN} or newer, but there is no `java` in JAVA_HOME={tmp_path}: install "
        "one, or set JAVA_HOME to its directory."
    )


@pytest.mark.parametrize(
    ("printed", "said"), [('version "11.0.2"', "is version 11"), ("hi", "prints no version")]
)
def test_an_old_jdk(tmp_path, printed, said):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{printed}' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IEXEC)
    problem = java_problem(str(tmp_path))
    assert problem is not None
    assert said in problem


def test_a_new_jdk(tmp_path):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IEXEC)
    assert java_problem(str(tmp_path)) is None


def test_python_and_memory():
    assert python_problem((3, 11)) is None
    assert "too old" in (python_problem((3, 9)) or "")
    assert memory_problem(None) is None
    assert memory_problem(8 << 30) is None
    assert (memory_problem(1 << 30) or "").startswith("1.0 GB of memory are available")
