"""Takes the steps of a call on the caller's thread: the session is locked but while the call waits or the
application's own functions run.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from headrace.base.time import NEVER
from headrace.client.clock import clock
from headrace.client.steps import Call, Steps, Tell, Wait
from headrace.client.threads.driver import Driver

T = TypeVar("T")


def take(steps: Steps[T], driver: Driver, owner: object, wake: Callable[[], None]) -> T:
    """What the call gives; `owner` is what a `Tell` tells of, and `wake` has the driver turn if it should."""
    value: Any = None
    error: BaseException | None = None
    driver.lock.acquire()
    try:
        while True:
            step = steps.send(value) if error is None else steps.throw(error)
            value = error = None
            try:
                match step:
                    case Wait(is_over, until):
                        wake()
                        value = driver.wait_until(
                            is_over, None if until == NEVER else max(0.0, until - clock())
                        )
                    case Call(function, arguments):
                        value = _unlocked(driver, function, arguments)
                    case Tell(function, arguments):
                        value = _unlocked(driver, function, (owner, *arguments))
            except BaseException as raised:
                error = raised
    except StopIteration as end:
        return cast("T", end.value)
    finally:
        error = None  # it refers to this frame
        driver.lock.release()


def _unlocked(driver: Driver, function: Any, arguments: tuple[Any, ...]) -> Any:
    driver.lock.release()
    try:
        return function(*arguments)
    finally:
        driver.lock.acquire()
