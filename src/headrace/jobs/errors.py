"""Errors of jobs, and which of them a retry cannot help."""

from __future__ import annotations

from typing import NamedTuple

from headrace.client.errors import ClientError, PartlyFailed, ProducerUnusable


class WrongJobs(ValueError):
    """The file of jobs is wrong; the message says where, and what to write."""


class JobFailed(Exception):
    """A run cannot go on; the message says why, and `advice` what to do."""

    def __init__(self, message: str, advice: str = "", *, is_retriable: bool = False) -> None:
        super().__init__(message)
        self.advice = advice
        self.is_retriable = is_retriable


class Fault(NamedTuple):
    """How a run failed."""

    message: str
    advice: str
    is_retriable: bool


def fault_of(error: BaseException) -> Fault:
    """Wrong settings, schemas, rights and lost records stay wrong; everything else may be over soon."""
    if isinstance(error, JobFailed):
        return Fault(str(error), error.advice, error.is_retriable)
    if isinstance(error, WrongJobs):
        return Fault(str(error), "Correct the file of jobs.", False)
    if isinstance(error, ProducerUnusable):
        # another run of the job has begun: of two, the one that began last goes on
        return Fault(str(error), error.advice, True)
    if isinstance(error, ClientError):
        first = next(iter(error.failures.values())) if isinstance(error, PartlyFailed) else error
        return Fault(str(error), first.advice, error.is_retriable or first.is_retriable)
    if isinstance(error, ValueError | ImportError):  # options, schemas, expressions, missing extras
        return Fault(str(error) or type(error).__name__, "", False)
    return Fault(f"{type(error).__name__}: {error}", "", True)
