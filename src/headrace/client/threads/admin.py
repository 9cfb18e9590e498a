"""The blocking admin client: `headrace.Admin`."""

from headrace.client.admin.methods import AdminMethods
from headrace.client.threads.client import BlockingClient


class Admin(AdminMethods, BlockingClient):
    """Describes and changes topics, configs, groups, transactions, brokers, ACLs and users.

    Settings have Kafka's names, or Python's spelling of them; text alone is `bootstrap.servers`. Every method
    waits for at most default.api.timeout.ms, and retries what may succeed meanwhile; `within` sets another
    timeout. Any number of threads may use one client.

    A method raises an error that names its subject, mostly a `KafkaError`. When some of several subjects
    failed, that is a `PartlyFailed`, which has the results of the others.

    >>> with Admin(servers) as admin:
    ...     admin.describe_topic("orders").replication_factor
    1
    """

    def _start(self) -> None:
        self._driver.start()
