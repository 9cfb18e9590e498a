"""The project file: what is read, and what is said about a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.pipelines.errors import ProjectError
from headrace.pipelines.project import (
    Project,
    Trigger,
    find_project,
    load_project,
    parse_project,
    parse_trigger,
)
from headrace.pipelines.templates import write_project

FILE = Path("/project/spark-pipeline.yml")
RIGHT = {"name": "clicks", "storage": "file:///data/clicks", "libraries": [{"glob": {"include": "t/**"}}]}


def test_a_new_project_is_found_and_read(tmp_path: Path) -> None:
    written = write_project(tmp_path / "my clicks")
    below = tmp_path / "my clicks" / "transformations"
    project = load_project(find_project(below))
    assert project.name == "my clicks"
    assert project.storage == tmp_path / "my clicks" / "storage"
    assert project.definition_files() == [written[1]]
    assert project.spark_settings == {}
    with pytest.raises(ProjectError, match="is not empty"):
        write_project(tmp_path / "my clicks")


def test_a_directory_without_a_project(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match="`headrace pipeline init NAME` makes a project"):
        find_project(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"storag": "x"}, "unknown field storag; did you mean storage?"),
        ({"name": ""}, "the field name is missing"),
        ({"storage": "s3://bucket"}, "storage=s3://bucket: must be a directory of a local file system"),
        ({"configuration": []}, "must be a mapping|^$"),
        ({"configuration": ["x"]}, "configuration must be a mapping"),
        ({"configuration": {"spark.x": 1}}, 'spark.x=1: must be a text; write "1"'),
        ({"configuration": {"headrace.triger": "once"}}, "did you mean headrace.trigger?"),
        ({"configuration": {"headrace.trigger": "often"}}, "'often' is not an interval"),
        ({"configuration": {"headrace.output.mode": "all"}}, "must be append, update, complete"),
        ({"configuration": {"headrace.max.offsets": "0"}}, "a whole number, at least 1"),
        ({"libraries": ["x"]}, "libraries: write"),
        ({"libraries": [{"glob": {"include": "t/*.py"}}]}, "Spark takes no other patterns"),
    ],
)
def test_a_wrong_file_is_told(change: dict[str, object], message: str) -> None:
    if change == {"configuration": []}:  # empty is the same as missing
        assert parse_project({**RIGHT, **change}, FILE).configuration == {}
        return
    with pytest.raises(ProjectError, match=message.replace("?", r"\?")):
        parse_project({**RIGHT, **change}, FILE)


def test_text_that_is_not_yaml_has_its_line(tmp_path: Path) -> None:
    file = tmp_path / "spark-pipeline.yml"
    file.write_text("name: clicks\nstorage: [\n")
    with pytest.raises(ProjectError, match=r"spark-pipeline.yml:3: not YAML"):
        load_project(file)
    file.write_text("clicks")
    with pytest.raises(ProjectError, match="must be a mapping"):
        load_project(file)


def project(**configuration: str) -> Project:
    named = {f"headrace.{name}": text for name, text in configuration.items()}
    return parse_project({**RIGHT, "configuration": named}, FILE)


def test_a_flow_wins_over_the_command_and_the_command_over_the_project() -> None:
    found = project(trigger="continuous", refresh="5 minutes", **{"max.offsets": "7"})
    assert found.flow_settings({}).trigger == Trigger("continuous")
    assert found.flow_settings({}, Trigger("once")).trigger == Trigger("once")
    own = {"headrace.trigger": "10 seconds", "headrace.once": "true", "spark.x": "y"}
    settings = found.flow_settings(own, Trigger("once"))
    assert settings.trigger == Trigger("every", 10.0)
    assert str(settings.trigger) == "every 10 s"
    assert (settings.refresh_s, settings.offsets_per_trigger_max, settings.is_once) == (300.0, 7, True)


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("every 2 minutes", 120.0), ("1 hour", 3600.0)]
)
def test_intervals(text: str, seconds: float) -> None:
    assert parse_trigger(text) == Trigger("every", seconds)


def test_definition_files_end_with_py_or_sql(tmp_path: Path) -> None:
    made = parse_project(RIGHT, tmp_path / "spark-pipeline.yml")
    (tmp_path / "t" / "deep" / "__pycache__").mkdir(parents=True)
    with pytest.raises(ProjectError, match="no definition file"):
        made.definition_files()
    (tmp_path / "t" / "deep" / "__pycache__" / "a.pyc").touch()
    (tmp_path / "t" / "deep" / "b.sql").touch()
    (tmp_path / "t" / "a.py").touch()
    assert [file.name for file in made.definition_files()] == ["a.py", "b.sql"]
    (tmp_path / "t" / "notes.txt").touch()
    with pytest.raises(ProjectError, match=r"notes.txt: a definition file ends with .py or .sql"):
        made.definition_files()
