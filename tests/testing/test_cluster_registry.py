"""The registry of a cluster with an authorizer: every broker checks what it is asked."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import headrace
from harness.wait import eventually
from headrace.client.admin.acls import Acl, AclFilter, AclOperation, AclPattern, AclResource
from headrace.testing import Cluster

Make = Callable[..., Cluster]

PASSWORD = "a secret"
SCHEMA = {"schema": '"string"'}
SETTINGS = {
    "headrace.metrics.port": 0,
    "authorizer.class.name": "standard",
    "super.users": "User:ANONYMOUS",  # the other nodes, and the test itself by Kafka's protocol
}


def ask(
    address: str, method: str, path: str, body: Any = None, user: str | None = "alice"
) -> tuple[int, Any]:
    headers = {"Content-Type": "application/json"}
    if user is not None:
        headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:{PASSWORD}".encode()).decode()
    data = None if body is None else json.dumps(body).encode()
    try:
        with urlopen(Request(address + path, data, headers, method=method), timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def status_of(address: str, method: str, path: str, body: Any = None) -> Callable[[], int]:
    return lambda: ask(address, method, path, body)[0]


def test_every_broker_checks_the_client(headrace_cluster: Make) -> None:
    cluster = headrace_cluster(3, SETTINGS, log_level="info")
    addresses = [
        re.findall(r" metrics address=(\S+)/metrics", "".join(cluster.log(node)))[-1]
        for node in cluster.nodes
    ]
    with headrace.Admin(cluster.bootstrap_servers) as admin:
        admin.set_password("alice", PASSWORD)
        for address in addresses:
            eventually(status_of(address, "GET", "/subjects"), 200)
            path = "/subjects/orders-value/versions"
            assert ask(address, "POST", path, SCHEMA, user=None)[1]["error_code"] == 40101
            assert ask(address, "POST", path, SCHEMA)[1]["error_code"] == 40301
        # nobody reached the topic through a broker that does not lead it
        assert "_schemas" not in {topic.name for topic in admin.list_topics()}

        admin.create_acls([Acl(AclResource.TOPIC, "orders", "User:alice", AclOperation.WRITE)])
        for number, address in enumerate(addresses):
            path = f"/subjects/orders-{'key' if number else 'value'}/versions"
            eventually(status_of(address, "POST", path, SCHEMA), 200)
        assert "_schemas" in {topic.name for topic in admin.list_topics()}
        for address in addresses:
            assert ask(address, "GET", "/subjects") == (200, ["orders-key", "orders-value"])
            assert ask(address, "DELETE", "/subjects/orders-key")[1]["error_code"] == 40301
            assert ask(address, "PUT", "/config", {"compatibility": "NONE"})[1]["error_code"] == 40301

        admin.delete_acls([AclFilter(pattern=AclPattern.ANY)])
        for address in addresses:
            eventually(status_of(address, "GET", "/subjects/orders-value/versions"), 403)
            assert ask(address, "GET", "/subjects") == (200, [])
            assert ask(address, "POST", "/subjects/orders-value/versions", SCHEMA)[1]["error_code"] == 40301
