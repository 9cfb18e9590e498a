"""The settings of producers and consumers: Kafka's names, defaults and bounds, in the notation of
`machines.configs.definition`; the column for updates says `client` here, and the values of keys that allow
`object` are things of Python, handed in by code.
"""

COMMON = """\
bootstrap.servers list required * high client
    Addresses from which the cluster is found, as host:port; not all of them need to live.
client.id string "" * medium client
    How this client is called in the broker's logs, metrics and quotas.
client.dns.lookup string use_all_dns_ips * medium client
    Whether all addresses of a name are tried.
connections.max.idle.ms long 540000 * medium client
    After how long a connection without use is closed.
default.api.timeout.ms int 60000 0.. medium client
    How long calls without a timeout of their own may take.
headrace.unreachable.timeout.ms long -1 -1.. medium client
    After how long without a connection to any broker calls that wait raise Unreachable; -1: they wait as long
    as their own timeouts allow, and `poll` without a timeout for ever. A warning is logged after a second.
metadata.max.age.ms long 300000 0.. low client
    After how long topics are looked up again without a reason.
metadata.recovery.strategy string rebootstrap ~{rebootstrap,none} low client
    What to do when no known broker answers: begin anew with bootstrap.servers, or not.
metadata.recovery.rebootstrap.trigger.ms long 300000 0.. low client
    For how long no known broker may answer before bootstrap.servers are asked again.
receive.buffer.bytes int 65536 -1.. medium client
    The socket's receive buffer; -1 leaves it to the system.
reconnect.backoff.ms long 50 0.. low client
    The first pause before a broker is connected to again.
reconnect.backoff.max.ms long 1000 0.. low client
    The longest such pause; it doubles with every failure.
request.timeout.ms int 30000 0.. medium client
    How long an answer may take.
retry.backoff.ms long 100 0.. low client
    The first pause before a failed request is tried again.
retry.backoff.max.ms long 1000 0.. low client
    The longest such pause; it doubles with every failure, and is spread at random by a fifth.
oauth.token.provider class null object medium client
    A function without arguments that gives a token for OAUTHBEARER: its text, or a Token.
sasl.jaas.config password null * medium client
    User and password as Java's clients have them; sasl.username and sasl.password say the same.
sasl.mechanism string GSSAPI * medium client
    PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER.
sasl.oauthbearer.client.id string null * medium client
    Who we are to the token endpoint.
sasl.oauthbearer.client.secret password null * medium client
    Our secret there.
sasl.oauthbearer.extensions list "" * low client
    What the broker is told beside the token, as key=value,key=value.
sasl.oauthbearer.scope string null * low client
    What the token is to be good for.
sasl.oauthbearer.token.endpoint.url string null * medium client
    Where tokens are fetched for sasl.oauthbearer.client.id, if there is no oauth.token.provider.
sasl.password password null * medium client
    The user's password, of PLAIN and SCRAM.
sasl.username string null * medium client
    The user's name, of PLAIN and SCRAM.
security.protocol string PLAINTEXT ~{plaintext,ssl,sasl_plaintext,sasl_ssl} medium client
    Whether connections are encrypted and whether users log in.
send.buffer.bytes int 131072 -1.. medium client
    The socket's send buffer; -1 leaves it to the system.
socket.connection.setup.timeout.ms long 10000 * medium client
    How long the first try to connect may take.
socket.connection.setup.timeout.max.ms long 30000 * medium client
    How long a later one may take; it doubles with every failure.
enable.ssl.certificate.verification boolean true * low client
    Whether the broker's certificate is looked at; false trusts everybody.
ssl.ca.location string null * medium client
    A PEM file, or a directory of them, with authorities to trust, as confluent-kafka has it.
ssl.certificate.location string null * medium client
    Our certificate as a PEM file, with its chain.
ssl.cipher.suites list "" * low client
    The cipher suites of TLS 1.2, by OpenSSL's names.
ssl.context class null object medium client
    An ssl.SSLContext that says all of this by itself.
ssl.enabled.protocols list TLSv1.2,TLSv1.3 * medium client
    The versions of TLS that are spoken.
ssl.endpoint.identification.algorithm string https * low client
    https: the broker's certificate must name its host; none or empty: any host.
ssl.key.location string null * medium client
    Our private key as a PEM file; without it, the key is in ssl.certificate.location.
ssl.key.password password null * high client
    What opens our private key, if it is encrypted.
ssl.keystore.certificate.chain password null * high client
    Our certificate as PEM text, with its chain.
ssl.keystore.key password null * high client
    Our private key as PEM text.
ssl.keystore.location string null * high client
    A PEM file with our certificate and our key.
ssl.keystore.password password null * high client
    Of Java's own formats, which are not read here.
ssl.keystore.type string PEM ~{pem,jks,pkcs12} medium client
    PEM is read; of the others we say how to convert them.
ssl.truststore.certificates password null * high client
    Authorities to trust as PEM text.
ssl.truststore.location string null * high client
    A PEM file, or a directory of them, with authorities to trust; without any, the system's are.
ssl.truststore.password password null * high client
    Of Java's own formats, which are not read here.
ssl.truststore.type string PEM ~{pem,jks,pkcs12} medium client
    PEM is read; of the others we say how to convert them.
"""

PRODUCER = """\
acks string all {all,-1,0,1} low client
    Who must have a record before it is acknowledged: all replicas in sync, the leader, or nobody.
batch.size int 16384 0.. medium client
    From how many bytes of one partition on they leave without waiting for linger.ms.
buffer.memory long 33554432 0.. high client
    How many bytes may wait to be delivered, over all partitions.
compression.gzip.level int -1 -1..9 medium client
compression.lz4.level int 9 1..17 medium client
compression.type string none {none,gzip,snappy,lz4,zstd} high client
    The codec of batches.
compression.zstd.level int 3 -131072..22 medium client
delivery.timeout.ms int 120000 0.. medium client
    By when a record is delivered or reported as lost, from the moment it was sent.
enable.idempotence boolean true * low client
    Whether retries can neither repeat records nor change their order.
headrace.batch.size.max int 1000000 0.. low client
    How large a batch may grow while it cannot leave, because brokers are busy; batch.size if that is more.
headrace.rate.bytes long 0 0.. low client
    How many bytes of keys and values are sent per second at most; 0: as many as there are.
headrace.rate.records long 0 0.. low client
    How many records are sent per second at most; 0: as many as there are.
linger.ms long 5 0.. medium client
    How long a batch waits for more records.
max.block.ms long 60000 0.. medium client
    How long `send` waits for room or for a topic's metadata.
max.in.flight.requests.per.connection int 5 1.. low client
    How many requests wait for answers per broker; at most 5 with idempotence.
max.request.size int 1048576 0.. medium client
    The largest request, and so the largest record.
metadata.max.idle.ms long 300000 5000.. low client
    After how long a topic that is not written to is forgotten.
partitioner string default {default,murmur2,murmur2_random,sticky,round_robin} medium client
    How a record without a partition gets one; a function may be given instead.
partitioner.adaptive.partitioning.enable boolean true * low client
    Whether slow partitions get fewer of the records that have no key.
partitioner.ignore.keys boolean false * medium client
    Whether records with keys are spread like those without.
receive.buffer.bytes int 32768 -1.. medium client
    The socket's receive buffer; -1 leaves it to the system.
retries int 2147483647 0..2147483647 high client
    How often a record is sent again at most; delivery.timeout.ms ends it earlier.
transaction.timeout.ms int 60000 * low client
    After how long the broker aborts a transaction that stays open.
transactional.id string null * low client
    The name under which transactions survive a restart; who takes it over fences who had it.
"""

CONSUMER = """\
allow.auto.create.topics boolean true * medium client
    Whether the broker may make a topic that is subscribed to.
auto.commit.interval.ms int 5000 0.. low client
    How often offsets are committed on their own.
auto.offset.reset string latest * medium client
    Where to begin without a committed offset: earliest, latest, by_duration:PnDTnHnMn.nS; none is an error.
check.crcs boolean true * low client
    Whether the checksum of what is read is checked.
client.rack string "" * low client
    Where this client runs, so that it can read from a replica nearby.
enable.auto.commit boolean true * medium client
    Whether offsets are committed on their own.
exclude.internal.topics boolean true * medium client
    Whether a pattern leaves out Kafka's own topics.
fetch.max.bytes int 52428800 0.. medium client
    How much an answer may hold; a batch that is larger comes alone.
fetch.max.wait.ms int 500 0.. low client
    How long the broker waits for fetch.min.bytes.
fetch.min.bytes int 1 0.. high client
    How much the broker gathers before it answers.
group.id string null * high client
    The group whose members share the partitions.
group.instance.id string null * medium client
    A name that keeps its partitions over a restart.
group.protocol string classic ~{classic,consumer} high client
    Who assigns partitions: a member of the group, or the broker (KIP-848).
group.remote.assignor string null * medium client
    The broker's assignor, with the consumer protocol.
heartbeat.interval.ms int 3000 * high client
    How often the group hears of us, with the classic protocol.
isolation.level string read_uncommitted ~{read_uncommitted,read_committed} medium client
    Whether records of open and aborted transactions are seen.
max.partition.fetch.bytes int 8388608 0.. high client
    How much of one partition an answer may hold. Kafka's default is an eighth of it; large answers are read
    several times as fast, and fetch.max.bytes bounds all of them together.
max.poll.interval.ms int 300000 1.. medium client
    How long processing may take between two polls before the partitions go to others.
max.poll.records int 500 1.. medium client
    How many records a poll gives at most.
partition.assignment.strategy list range,cooperative-sticky * medium client
    How members share partitions, with the classic protocol: range, roundrobin, sticky, cooperative-sticky.
session.timeout.ms int 45000 * high client
    After how long of silence a member is taken for dead, with the classic protocol.
"""

# Java's clients need them to find classes, beans and their like; accepted, so that files can be shared.
KEPT = """\
config.providers list "" * low client
enable.metrics.push boolean true * low client
interceptor.classes list "" * low client
key.deserializer class null * low client
key.serializer class null * low client
metric.reporters list "" * low client
metrics.num.samples int 2 * low client
metrics.recording.level string INFO * low client
metrics.sample.window.ms long 30000 * low client
partitioner.class class null * low client
partitioner.availability.timeout.ms long 0 * low client
sasl.client.callback.handler.class class null * low client
sasl.kerberos.kinit.cmd string /usr/bin/kinit * low client
sasl.kerberos.min.time.before.relogin long 60000 * low client
sasl.kerberos.service.name string null * low client
sasl.kerberos.ticket.renew.jitter double 0.05 * low client
sasl.kerberos.ticket.renew.window.factor double 0.8 * low client
sasl.login.callback.handler.class class null * low client
sasl.login.class class null * low client
sasl.login.connect.timeout.ms int null * low client
sasl.login.read.timeout.ms int null * low client
sasl.login.refresh.buffer.seconds short 300 * low client
sasl.login.refresh.min.period.seconds short 60 * low client
sasl.login.refresh.window.factor double 0.8 * low client
sasl.login.refresh.window.jitter double 0.05 * low client
sasl.login.retry.backoff.max.ms long 10000 * low client
sasl.login.retry.backoff.ms long 100 * low client
sasl.oauthbearer.jwt.retriever.class class null * low client
sasl.oauthbearer.jwt.validator.class class null * low client
sasl.oauthbearer.method string default ~{default,oidc} low client
security.providers string null * low client
ssl.engine.factory.class class null * low client
ssl.keymanager.algorithm string SunX509 * low client
ssl.protocol string TLSv1.3 * low client
ssl.provider string null * low client
ssl.secure.random.implementation string null * low client
ssl.trustmanager.algorithm string PKIX * low client
transaction.two.phase.commit.enable boolean false * low client
value.deserializer class null * low client
value.serializer class null * low client
"""

# What other clients call the same: librdkafka (confluent-kafka), kafka-python and aiokafka, newer Java.
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
