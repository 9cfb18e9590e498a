"""The same shop as a FastStream service: orders up to a limit are approved."""

from __future__ import annotations

from faststream.kafka import KafkaBroker
from pydantic import BaseModel


class Order(BaseModel):
    customer: str
    amount: int


def approval_service(bootstrap_servers: str, limit: int) -> KafkaBroker:
    broker = KafkaBroker(bootstrap_servers, logger=None)
    approved = broker.publisher("approved")

    @broker.subscriber("orders", group_id="approval", auto_offset_reset="earliest")
    async def approve(order: Order) -> None:
        if order.amount <= limit:
            await approved.publish(order, key=order.customer.encode())

    return broker
