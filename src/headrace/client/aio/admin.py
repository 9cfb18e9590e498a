"""The admin client for asyncio: `headrace.aio.Admin`."""

from headrace.client.admin.methods import AdminMethods
from headrace.client.aio.client import AsyncClient


class Admin(AdminMethods, AsyncClient):
    """The methods of `headrace.Admin` as coroutines.

    It may be made before the loop runs, and belongs to the loop on which it is first waited for. Any number
    of tasks may use it at once; one that is cancelled does not take back what it has ordered.

    >>> import asyncio
    >>> from headrace.aio import Admin
    >>> async def main():
    ...     async with Admin(servers) as admin:
    ...         asked = admin.describe_topic("orders"), admin.describe_cluster()
    ...         topic, cluster = await asyncio.gather(*asked)
    ...         print(topic.name, cluster.controller_id)
    >>> asyncio.run(main())
    orders 1
    """
