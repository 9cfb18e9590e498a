"""Every key of producers, consumers and admin clients: Kafka's names, defaults and ranges.

The notation is that of `machines.configs.definition`; its column for updates names here the clients that take
the key: `all`, `producer` or `consumer`. The value of a key that allows `object` is an object of Python, and
only code can give it.
"""

from functools import lru_cache

from headrace.machines.configs.definition import KEPT_DOC, ConfigKey, parse_table

TABLE = """\
bootstrap.servers list required * high all
    Addresses at which the client finds the cluster, as host:port; not all of them need to be up.
client.id string "" * medium all
    The client's name in the broker's logs, metrics and quotas.
connections.max.idle.ms long 540000 * medium all
    How long a connection may be idle before the client closes it; below 0: for ever.
default.api.timeout.ms int 60000 0.. medium all
    How long a call may take that has no timeout of its own.
headrace.unreachable.timeout.ms long -1 -1.. medium all
    How long no broker may be reachable before calls that wait raise Unreachable. -1: they wait as long as
    their own timeouts allow, and `poll` without a timeout for ever. A warning is logged after a second.
metadata.max.age.ms long 300000 0.. low all
    How old the metadata of a topic may be before it is requested again.
metadata.recovery.strategy string rebootstrap ~{rebootstrap,none} low all
    What to do when no known broker answers: try bootstrap.servers again, or not.
receive.buffer.bytes int -1 -1.. medium all
    The size of the socket's receive buffer; -1: the system's choice.
reconnect.backoff.ms long 50 0.. low all
    The first pause before the client connects again to a broker that failed.
reconnect.backoff.max.ms long 1000 0.. low all
    The longest such pause; pauses double with every failure.
request.timeout.ms int 30000 0.. medium all
    How long the client waits for the response to a request.
retry.backoff.ms long 100 0.. low all
    The first pause before a failed request is sent again.
retry.backoff.max.ms long 1000 0.. low all
    The longest such pause; pauses double with every failure, and vary at random by a fifth.
oauth.token.provider class null object medium all
    A function without arguments that returns a token for OAUTHBEARER: its text, or a Token.
sasl.jaas.config password null * medium all
    User and password as Java's clients write them, in place of sasl.username and sasl.password.
sasl.mechanism string GSSAPI * medium all
    PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER.
sasl.oauthbearer.client.id string null * medium all
    The client id for the token endpoint.
sasl.oauthbearer.client.secret password null * medium all
    The client secret for the token endpoint.
sasl.oauthbearer.extensions list "" * low all
    SASL extensions that are sent with the token, as key=value,key=value.
sasl.oauthbearer.scope string null * low all
    The scope that is requested from the token endpoint.
sasl.oauthbearer.token.endpoint.url string null * medium all
    The token endpoint of the identity provider; used if there is no oauth.token.provider.
sasl.password password null * medium all
    The user's password, for PLAIN and SCRAM.
sasl.username string null * medium all
    The user's name, for PLAIN and SCRAM.
security.protocol string PLAINTEXT ~{plaintext,ssl,sasl_plaintext,sasl_ssl} medium all
    Whether connections are encrypted (SSL), and whether the client logs in (SASL).
send.buffer.bytes int -1 -1.. medium all
    The size of the socket's send buffer; -1: the system's choice.
socket.connection.setup.timeout.ms long 10000 * medium all
    How long the first attempt to connect may take.
socket.connection.setup.timeout.max.ms long 30000 * medium all
    How long a later attempt may take; the time doubles with every failure.
enable.ssl.certificate.verification boolean true * low all
    Whether the broker's certificate is checked; false trusts every broker.
ssl.ca.location string null * medium all
    A PEM file with the authorities to trust, or a directory of such files; confluent-kafka's name.
ssl.certificate.location string null * medium all
    The client's certificate with its chain, as a PEM file.
ssl.cipher.suites list "" * low all
    The cipher suites of TLS 1.2, by OpenSSL's names.
ssl.context class null object medium all
    An ssl.SSLContext, in place of all other ssl.* settings.
ssl.enabled.protocols list TLSv1.2,TLSv1.3 * medium all
    The versions of TLS that the client accepts.
ssl.endpoint.identification.algorithm string https * low all
    https: the broker's certificate must name its host; none or empty: any host is accepted.
ssl.key.location string null * medium all
    The client's private key as a PEM file; without it, the key is read from ssl.certificate.location.
ssl.key.password password null * high all
    The password of the client's private key, if the key is encrypted.
ssl.keystore.certificate.chain password null * high all
    The client's certificate with its chain, as PEM text.
ssl.keystore.key password null * high all
    The client's private key as PEM text.
ssl.keystore.location string null * high all
    A PEM file with the client's certificate and private key.
ssl.keystore.password password null * high all
    The password of a keystore in one of Java's formats, which the client does not read.
ssl.keystore.type string PEM ~{pem,jks,pkcs12} medium all
    The client reads PEM; for the other formats the error says how to convert them.
ssl.truststore.certificates password null * high all
    The authorities to trust, as PEM text.
ssl.truststore.location string null * high all
    A PEM file with the authorities to trust, or a directory of such files; without any, the system's.
ssl.truststore.password password null * high all
    The password of a truststore in one of Java's formats, which the client does not read.
ssl.truststore.type string PEM ~{pem,jks,pkcs12} medium all
    The client reads PEM; for the other formats the error says how to convert them.
acks string all {all,-1,0,1} low producer
    Which replicas must have a record before the broker acknowledges it: all in sync (all or -1), the leader
    (1), or none (0).
batch.size int 16384 0.. medium producer
    A batch of this many bytes is sent without waiting for linger.ms.
buffer.memory long 33554432 0.. high producer
    How many bytes of records may wait to be delivered, in all partitions together.
compression.gzip.level int -1 -1..9 medium producer
    The level of gzip; -1: its default.
compression.lz4.level int 9 1..17 medium producer
    The level of lz4.
compression.type string none {none,gzip,snappy,lz4,zstd} high producer
    The compression codec of batches.
compression.zstd.level int 3 -131072..22 medium producer
    The level of zstd.
delivery.timeout.ms int 120000 0.. medium producer
    How long after `send` a record may take to be acknowledged before it is reported as lost.
enable.idempotence boolean true * low producer
    Whether retries can neither duplicate records nor change their order.
headrace.batch.size.max int 1000000 0.. low producer
    How large a batch may grow while it cannot be sent because brokers are busy; at least batch.size.
headrace.rate.bytes long 0 0.. low producer
    How many bytes of keys and values are sent per second at most; 0: no limit.
headrace.rate.records long 0 0.. low producer
    How many records are sent per second at most; 0: no limit.
linger.ms long 5 0.. medium producer
    How long a batch waits for more records.
max.block.ms long 60000 0.. medium producer
    How long `send` waits for buffer memory or for a topic's metadata.
max.in.flight.requests.per.connection int 5 1.. low producer
    How many requests to a broker may wait for responses; at most 5 with idempotence.
max.request.size int 1048576 0.. medium producer
    The size of the largest request, and so of the largest record.
partitioner string default {default,murmur2,murmur2_random,sticky,round_robin} medium producer
    How a record without a partition gets one; a function may be given instead.
partitioner.adaptive.partitioning.enable boolean true * low producer
    Whether slow partitions get fewer of the records without a key.
partitioner.ignore.keys boolean false * medium producer
    Whether records with keys are distributed like those without.
retries int 2147483647 0..2147483647 high producer
    How often a record is sent again at most; delivery.timeout.ms ends the retries earlier.
transaction.timeout.ms int 60000 * low producer
    How long a transaction may stay open before the broker aborts it.
transactional.id string null * low producer
    The identity of a transactional producer across restarts; a new producer with this id fences the old one.
allow.auto.create.topics boolean true * medium consumer
    Whether the broker may create a topic that is subscribed to.
auto.commit.interval.ms int 5000 0.. low consumer
    How often offsets are committed automatically.
auto.offset.reset string latest * medium consumer
    Where reading begins without a committed offset: earliest, latest or by_duration:PnDTnHnMn.nS; none: an
    error is raised.
check.crcs boolean true * low consumer
    Whether the checksums of batches are checked.
client.rack string "" * low consumer
    The rack of this client, so that it can read from a replica nearby.
enable.auto.commit boolean true * medium consumer
    Whether offsets are committed automatically.
exclude.internal.topics boolean true * medium consumer
    Whether patterns leave out Kafka's internal topics.
fetch.max.bytes int 52428800 0.. medium consumer
    How many bytes a fetch response may have; a larger batch comes alone.
fetch.max.wait.ms int 500 0.. low consumer
    How long the broker waits for fetch.min.bytes.
fetch.min.bytes int 1 0.. high consumer
    How many bytes the broker gathers before it responds.
group.id string null * high consumer
    The group whose members share the partitions.
group.instance.id string null * medium consumer
    The name of a static member, which keeps its partitions over a restart.
group.protocol string classic ~{classic,consumer} high consumer
    Who assigns partitions: a member of the group (classic), or the broker (consumer, KIP-848).
group.remote.assignor string null * medium consumer
    The broker's assignor, with the consumer protocol.
heartbeat.interval.ms int 3000 * high consumer
    How often a member sends a heartbeat, with the classic protocol.
isolation.level string read_uncommitted ~{read_uncommitted,read_committed} medium consumer
    Whether records of open and aborted transactions are read.
max.partition.fetch.bytes int 8388608 0.. high consumer
    How many bytes of one partition a fetch response may have. Kafka's default is an eighth of this; large
    responses are read several times as fast, and fetch.max.bytes limits all partitions together.
max.poll.interval.ms int 300000 1.. medium consumer
    How long the application may take between two polls before its partitions go to other members.
max.poll.records int 500 1.. medium consumer
    How many records one poll returns at most.
partition.assignment.strategy list range,cooperative-sticky * medium consumer
    How members share partitions, with the classic protocol: range, roundrobin, sticky, cooperative-sticky.
session.timeout.ms int 45000 * high consumer
    How long a member may send no heartbeat before the group removes it, with the classic protocol.
"""

# Accepted, so that files of Java's clients can be shared; they have no effect here.
KEPT = """\
client.dns.lookup string use_all_dns_ips * medium all
config.providers list "" * low all
enable.metrics.push boolean true * low all
interceptor.classes list "" * low all
key.deserializer class null * low all
key.serializer class null * low all
metadata.max.idle.ms long 300000 5000.. low all
metadata.recovery.rebootstrap.trigger.ms long 300000 0.. low all
metric.reporters list "" * low all
metrics.num.samples int 2 * low all
metrics.recording.level string INFO * low all
metrics.sample.window.ms long 30000 * low all
partitioner.availability.timeout.ms long 0 * low all
partitioner.class class null * low all
sasl.client.callback.handler.class class null * low all
sasl.kerberos.kinit.cmd string /usr/bin/kinit * low all
sasl.kerberos.min.time.before.relogin long 60000 * low all
sasl.kerberos.service.name string null * low all
sasl.kerberos.ticket.renew.jitter double 0.05 * low all
sasl.kerberos.ticket.renew.window.factor double 0.8 * low all
sasl.login.callback.handler.class class null * low all
sasl.login.class class null * low all
sasl.login.connect.timeout.ms int null * low all
sasl.login.read.timeout.ms int null * low all
sasl.login.refresh.buffer.seconds short 300 * low all
sasl.login.refresh.min.period.seconds short 60 * low all
sasl.login.refresh.window.factor double 0.8 * low all
sasl.login.refresh.window.jitter double 0.05 * low all
sasl.login.retry.backoff.max.ms long 10000 * low all
sasl.login.retry.backoff.ms long 100 * low all
sasl.oauthbearer.jwt.retriever.class class null * low all
sasl.oauthbearer.jwt.validator.class class null * low all
sasl.oauthbearer.method string default ~{default,oidc} low all
security.providers string null * low all
ssl.engine.factory.class class null * low all
ssl.keymanager.algorithm string SunX509 * low all
ssl.protocol string TLSv1.3 * low all
ssl.provider string null * low all
ssl.secure.random.implementation string null * low all
ssl.trustmanager.algorithm string PKIX * low all
transaction.two.phase.commit.enable boolean false * low all
value.deserializer class null * low all
value.serializer class null * low all
"""

# Names of the same settings in librdkafka (confluent-kafka), kafka-python, aiokafka and newer Java clients.
OTHER_NAMES = {
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
    "sasl.oauth.token.provider": "oauth.token.provider",
    "sasl.plain.password": "sasl.password",
    "sasl.plain.username": "sasl.username",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.cafile": "ssl.ca.location",
    "ssl.certfile": "ssl.certificate.location",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
    "ssl.keyfile": "ssl.key.location",
    "ssl.password": "ssl.key.password",
}


@lru_cache(maxsize=1)
def all_keys() -> dict[str, ConfigKey]:
    """Every key, sorted by name."""
    return dict(sorted({**parse_table(KEPT, KEPT_DOC), **parse_table(TABLE)}.items()))


@lru_cache(maxsize=1)
def producer_keys() -> dict[str, ConfigKey]:
    return _keys_of("producer")


@lru_cache(maxsize=1)
def consumer_keys() -> dict[str, ConfigKey]:
    return _keys_of("consumer")


@lru_cache(maxsize=1)
def admin_keys() -> dict[str, ConfigKey]:
    return _keys_of("admin")


def _keys_of(client: str) -> dict[str, ConfigKey]:
    return {name: key for name, key in all_keys().items() if key.update in ("all", client)}
