"""The compiled modules run as plain Python, compiled ones or not: tests hold both forms to the same."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import headrace.records


def interpreted(*names: str) -> SimpleNamespace:
    """These modules of records/, which know each other and no compiled one; each behind those it imports."""
    modules = SimpleNamespace()
    with patch.dict(sys.modules):
        for name in names:
            path = Path(headrace.records.__file__).with_name(f"{name}.py")
            spec = spec_from_file_location(f"headrace.records.{name}", path)
            assert spec is not None
            assert spec.loader is not None
            module = module_from_spec(spec)
            sys.modules[f"headrace.records.{name}"] = module
            spec.loader.exec_module(module)
            setattr(modules, name.lstrip("_"), module)
    return modules
