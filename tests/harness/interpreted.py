"""The compiled modules run as plain Python, compiled ones or not: tests hold both forms to the same."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import headrace.client.producer
import headrace.protocol
import headrace.records

PACKAGES = (headrace.records, headrace.protocol, headrace.client.producer)


def interpreted(*names: str) -> SimpleNamespace:
    """These modules of records/, protocol/ or client/producer/, which import each other and no compiled one;
    name each after those that it imports.
    """
    modules = SimpleNamespace()
    with patch.dict(sys.modules):
        for name in names:
            package, path = next(
                (package.__name__, path)
                for package in PACKAGES
                if (path := Path(str(package.__file__)).with_name(f"{name}.py")).exists()
            )
            spec = spec_from_file_location(f"{package}.{name}", path)
            assert spec is not None
            assert spec.loader is not None
            module = module_from_spec(spec)
            sys.modules[f"{package}.{name}"] = module
            spec.loader.exec_module(module)
            setattr(modules, name.lstrip("_"), module)
    return modules
