"""Takes the steps of a call in a task; functions of the application may be coroutines."""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from headrace.base.time import NEVER
from headrace.client.aio.driver import Driver
from headrace.client.clock import clock
from headrace.client.steps import Call, Steps, Tell, Wait

T = TypeVar("T")


async def take(steps: Steps[T], driver: Driver, owner: object, wake: Callable[[], None]) -> T:
    """What the call gives; `owner` is what a `Tell` tells of, and `wake` has the driver turn if it should."""
    value: Any = None
    error: BaseException | None = None
    while True:
        try:
            step = steps.send(value) if error is None else steps.throw(error)
        except StopIteration as end:
            return cast("T", end.value)
        value = error = None
        try:
            match step:
                case Wait(is_over, until):
                    wake()
                    timeout_s = None if until == NEVER else max(0.0, until - clock())
                    value = await driver.wait_until(is_over, timeout_s)
                case Call(function, arguments):
                    value = await _awaited(function(*arguments))
                case Tell(function, arguments):
                    value = await _awaited(function(owner, *arguments))
        except BaseException as raised:  # a cancellation, too: the call cleans up behind itself
            error = raised


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
