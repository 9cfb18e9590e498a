"""What makes a development cluster secure, for `up --secure`: certificates, users, rules and settings.

DIR/secure/                       for its owner alone
  ca.pem, ca.key                  the authority
  node-1.pem, …                   key and certificate of each node
  admin.password, …               the passwords of the users `admin` and `client`
  client.properties, …            settings of clients of Java and Headrace, written at each start
  client.librdkafka.properties    the same for kcat and confluent-kafka

Everything is made at the first start and kept. The passwords are written before the users' credentials: a
stop in between lets the next start make the credentials again. Clients log in by SCRAM over TLS. The nodes of
a cluster know each other by their certificates, on listeners of their own.
"""

import os
import secrets
from pathlib import Path

import click

from headrace.cli.bootstrap_users import BootstrapUsers, node_directories
from headrace.cli.certificates import Certificates
from headrace.machines.security import scram
from headrace.machines.security.acl_rules import (
    CLUSTER_NAME,
    EVERYTHING,
    AclRule,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from headrace.node.bootstrap import has_started
from headrace.server.disk import RealDisk

ADMIN, CLIENT = "admin", "client"
USERS = (ADMIN, CLIENT)
MECHANISM = scram.SHA_512.name
ITERATIONS = 8192
PASSWORD_BYTES = 24  # as 32 characters
_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"

# What the user `client` may do: everything with topics, groups and transactions, nothing with the cluster.
_CLIENT_RIGHTS = (
    (ResourceType.TOPIC, EVERYTHING, Operation.ALL),
    (ResourceType.GROUP, EVERYTHING, Operation.ALL),
    (ResourceType.TRANSACTIONAL_ID, EVERYTHING, Operation.ALL),
    (ResourceType.CLUSTER, CLUSTER_NAME, Operation.IDEMPOTENT_WRITE),
)


class SecureCluster:
    def __init__(self, directory: Path, nodes: int, *, is_new_authority: bool = False) -> None:
        self._directory = directory
        self._nodes = nodes
        self._is_new_authority = is_new_authority
        self.files = directory / "secure"
        self._certificates = Certificates(self.files)

    @staticmethod
    def is_in(directory: Path) -> bool:
        """Whether the cluster in this directory was made by `up --secure`."""
        return any((directory / "secure" / name).exists() for name in ("ca.pem", f"{ADMIN}.password"))

    @property
    def client_config(self) -> Path:
        return self.files / f"{CLIENT}.properties"

    @property
    def admin_config(self) -> Path:
        return self.files / f"{ADMIN}.properties"

    @property
    def client_password(self) -> Path:
        return self._password_path(CLIENT)

    def as_json(self) -> dict[str, str]:
        return {
            "client_config": str(self.client_config),
            "admin_config": str(self.admin_config),
            "librdkafka_config": str(self.files / f"{CLIENT}.librdkafka.properties"),
            "authority": str(self._certificates.authority),
        }

    def check(self) -> None:
        """ClickException: the cluster was made without --secure, or lost its passwords or its authority."""
        if not self._has_started():
            return
        if not self.is_in(self._directory):
            raise click.ClickException(
                f"{self._directory} has a cluster that was started without --secure, and so has no users and "
                "rules. Start it without --secure, or choose another directory with --data."
            )
        if not self._certificates.authority.exists() and not self._is_new_authority:
            raise click.ClickException(
                f"{self._certificates.authority} is missing, which clients need to trust the nodes. Restore "
                "the file, or make a new authority with --new-authority."
            )
        for user in USERS:
            if not self._password_path(user).exists():
                raise click.ClickException(
                    f"{self._password_path(user)} is missing: the password of {user} is not known any more. "
                    "Restore the file, or choose another directory with --data."
                )

    def prepare(self) -> None:
        """Makes what is missing: certificates, passwords, users and rules."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self.files.mkdir(mode=0o700, exist_ok=True)
        self._certificates.prepare(self._nodes, is_new_authority=self._is_new_authority)
        if self._has_started():
            return
        for user in USERS:
            if not self._password_path(user).exists():
                _write_private(self._password_path(user), secrets.token_urlsafe(PASSWORD_BYTES) + "\n")
        with BootstrapUsers(self._directory) as users:
            for user in USERS:
                users.put(user, self._password(user), scram.MECHANISMS, ITERATIONS)
            for kind, name, operation in _CLIENT_RIGHTS:
                who, pattern = f"User:{CLIENT}", PatternType.LITERAL
                users.allow(AclRule(kind, name, pattern, who, EVERYTHING, operation, Permission.ALLOW))
            users.save()

    def settings(self, node: int) -> dict[str, str]:
        """Of a node; its listeners are elsewhere."""
        nodes = [f"User:CN=node-{number}" for number in range(1, self._nodes + 1)] if self._nodes > 1 else []
        return {
            "authorizer.class.name": "standard",
            "super.users": ";".join([f"User:{ADMIN}", *nodes]),
            # PLAIN over TLS is for librdkafka before 2.6.1, whose SCRAM no broker takes that checks nonces
            "sasl.enabled.mechanisms": ",".join((*scram.MECHANISMS, "PLAIN")),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._certificates.node(node)),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._certificates.authority),
        }

    def write_client_settings(self, bootstrap: str) -> None:
        """The ports may be others than at the last start."""
        authority = self._certificates.authority
        for user in USERS:
            password = self._password(user)
            common = {
                "bootstrap.servers": bootstrap,
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": MECHANISM,
            }
            java = common | {
                "sasl.jaas.config": f'{_MODULE} required username="{user}" password="{password}";',
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(authority),
            }
            librdkafka = common | {
                "sasl.username": user,
                "sasl.password": password,
                "ssl.ca.location": str(authority),
            }
            _write_private(self.files / f"{user}.properties", _lines(java))
            _write_private(self.files / f"{user}.librdkafka.properties", _lines(librdkafka))

    def _has_started(self) -> bool:
        return any(
            path.is_dir() and has_started(RealDisk(str(path))) for path in node_directories(self._directory)
        )

    def _password_path(self, user: str) -> Path:
        return self.files / f"{user}.password"

    def _password(self, user: str) -> str:
        return self._password_path(user).read_text().strip()


def _lines(settings: dict[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _write_private(path: Path, text: str) -> None:
    """Whole or not at all, for its owner alone."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)
