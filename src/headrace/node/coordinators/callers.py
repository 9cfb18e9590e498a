"""Who asks a coordinator."""

from headrace.machines.coordination import Caller
from headrace.node.request import Request


def caller(request: Request) -> Caller:
    # the form in which Kafka remembers and shows addresses
    return Caller(request.client_id or "", f"/{request.connection.address}")
