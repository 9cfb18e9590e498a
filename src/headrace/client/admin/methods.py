"""From an operation to the method of a shell: the same name, the same text, the arguments plus `self`."""

from collections.abc import Callable
from inspect import Parameter, signature
from typing import Any, get_args


def present(method: Callable[..., Any], operation: Callable[..., Any]) -> None:
    """For help(), editors and documentation, which know nothing of generators."""
    method.__name__ = operation.__name__
    method.__qualname__ = f"Admin.{operation.__name__}"
    method.__doc__ = operation.__doc__
    plain = signature(operation)
    *_, result = get_args(plain.return_annotation)
    own = Parameter("self", Parameter.POSITIONAL_ONLY)
    shown = plain.replace(parameters=[own, *plain.parameters.values()], return_annotation=result)
    method.__signature__ = shown  # type: ignore[attr-defined]  # what inspect looks at first
