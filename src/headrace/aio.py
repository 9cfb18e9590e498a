"""Headrace's client for asyncio: the same names as in `headrace`, with coroutines for calls that wait."""

from headrace.client.aio.admin import Admin
from headrace.client.aio.consumer import Consumer
from headrace.client.aio.producer import Producer

__all__ = ["Admin", "Consumer", "Producer"]
