"""Settings of a broker that Headrace acts on. See `definition.py` for the notation."""

# ruff: noqa: E501 (one key per line)

TABLE = """
advertised.listeners list null * high ro
    Addresses that clients get in metadata, one per listener; by default those in `listeners`.
authorizer.class.name string "" * low ro
    Who decides what clients may do: `standard`, or Kafka's name of it, org.apache.kafka.metadata.authorizer.StandardAuthorizer; if it is empty, everybody may do everything. See also super.users and allow.everyone.if.no.acl.found.
auto.create.topics.enable boolean true * high ro
    Creates a topic when a client requests the metadata of one that does not exist, and the client allows it.
broker.heartbeat.interval.ms int 2000 * medium ro
    Time between the heartbeats that this broker sends to the active controller.
broker.id int -1 * high ro
    The old name of node.id.
broker.rack string null * medium ro
    The rack of this broker. The replicas of a partition are placed on different racks if possible.
broker.session.timeout.ms int 9000 * medium ro
    The controller fences a broker that sends no heartbeat for this long. A broker whose process has ended is fenced at once.
compression.gzip.level int -1 1..9|-1 medium cluster
    Compression level when the broker itself compresses with gzip; -1 is the codec's default.
compression.lz4.level int 9 1..17 medium cluster
    Compression level when the broker itself compresses with lz4.
compression.type string producer {uncompressed,zstd,lz4,snappy,gzip,producer} high cluster
    Codec of stored batches; `producer` keeps the producer's codec.
compression.zstd.level int 3 -131072..22 medium cluster
    Compression level when the broker itself compresses with zstd.
connection.failed.authentication.delay.ms int 100 0.. low ro
    How long the broker waits before it tells a client that its login is refused, and closes the connection.
connections.max.idle.ms long 600000 * medium ro
    How long a connection may be idle before the broker closes it.
connections.max.reauth.ms long 0 * medium ro
    How long a login counts. A client that has not logged in again by then is disconnected at its next request. 0: without end.
controlled.shutdown.enable boolean true * medium ro
    A broker that stops moves its leaders to other brokers first.
controller.listener.names list required * high ro
    Names of the listeners for controllers; they are not advertised to clients.
controller.quorum.bootstrap.servers list "" * high ro
    Addresses of the metadata quorum, as host:port; they must belong to this node. For several controllers, use controller.quorum.voters.
controller.quorum.election.backoff.max.ms int 1000 0.. high ro
    Longest wait of a controller that lost an election before it asks for votes again; the wait is random.
controller.quorum.election.timeout.ms int 1000 0.. high ro
    How long a controller waits for votes, or for a leader in a new epoch, before it asks for votes again.
controller.quorum.fetch.max.bytes int 1048576 1.. low ro
    Largest size of the records in one answer to a fetch of the metadata log; at least one batch is sent.
controller.quorum.fetch.snapshot.max.bytes int 1048576 1.. low ro
    Largest piece of a metadata snapshot in one answer.
controller.quorum.fetch.timeout.ms int 2000 0.. high ro
    A controller that gets no answer from its leader for this long asks for an election. A leader that gets no fetches from a majority for 1.5 times as long resigns. A leader whose process has ended is noticed at once.
controller.quorum.request.timeout.ms int 2000 0.. medium ro
    How long a node waits for the answer to a request in the metadata quorum.
controller.quorum.retry.backoff.ms int 20 0.. low ro
    Shortest wait before a request in the metadata quorum that failed is sent again.
controller.quorum.voters list "" * high ro
    The controllers that vote, as id@host:port, the same on every node. The first election needs all of them, later elections a majority.
controller.quota.window.num int 11 1.. low ro
    Number of windows of the quota controller_mutation_rate: so much may be used at once.
controller.quota.window.size.seconds int 1 1.. low ro
    Length of a window of the quota controller_mutation_rate.
default.replication.factor int 1 * medium ro
    Number of replicas of a topic, if the request to create it does not say. The value of the active controller counts.
delegation.token.expiry.check.interval.ms long 3600000 1.. low ro
    How often the active controller removes delegation tokens that have expired.
delegation.token.expiry.time.ms long 86400000 1.. medium ro
    How long a delegation token counts before it has to be renewed.
delegation.token.max.lifetime.ms long 604800000 1.. medium ro
    How long a delegation token counts with all its renewals.
delegation.token.secret.key password null * medium ro
    Secret from which delegation tokens are made, the same on all nodes. Without it there are none.
delete.topic.enable boolean true * high ro
    Whether topics can be deleted.
fetch.max.bytes int 57671680 1024.. medium ro
    Largest size of a fetch response, even if the client asks for more.
initial.broker.registration.timeout.ms int 60000 * medium ro
    If a broker cannot register with the controller within this time after its start, its process ends.
inter.broker.listener.name string null * medium ro
    Name of the listener that brokers use among each other.
internal.metadata.log.segment.bytes int null * low internal
    Segment size of the metadata log without its lower bound; for tests.
listener.security.protocol.map string SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT * low broker
    Security protocol of each listener name. Entries for names that are not among the listeners may be anything.
listeners list PLAINTEXT://127.0.0.1:9092 * high broker
    Addresses to listen on, as NAME://host:port; port 0 takes a free one. By default only programs on the same computer can reach the node (Kafka's default are all addresses).
log.cleaner.backoff.ms long 15000 0.. medium cluster
    How long the cleaner waits when no log needs compaction.
log.cleaner.dedupe.buffer.size long 134217728 * medium cluster
    Memory of the map from keys to offsets, in bytes; it limits the number of keys in one pass of compaction.
log.cleaner.delete.retention.ms long 86400000 0.. medium cluster
    How long compacted topics keep the tombstone of a deleted key.
log.cleaner.enable boolean true * medium ro
    Whether topics with cleanup.policy=compact are compacted.
log.cleaner.io.buffer.load.factor double 0.9 * medium cluster
    Largest load factor of the map from keys to offsets.
log.cleaner.io.buffer.size int 524288 0.. medium cluster
    Size of the cleaner's reads and writes, in bytes.
log.cleaner.io.max.bytes.per.second double 1.7976931348623157E308 * medium cluster
    Largest rate at which compaction reads and writes, in bytes per second.
log.cleaner.max.compaction.lag.ms long 9223372036854775807 1.. medium cluster
    A record of a compacted topic is compacted at the latest this long after it was written.
log.cleaner.min.cleanable.ratio double 0.5 0..1 medium cluster
    Share of a log that must be uncompacted before the cleaner compacts it.
log.cleaner.min.compaction.lag.ms long 0 0.. medium cluster
    A record stays uncompacted for at least this long.
log.cleaner.threads int 1 0.. medium cluster
    Number of logs that are compacted at the same time.
log.cleanup.policy list delete {compact,delete} medium cluster
    Default of cleanup.policy: delete, compact, or both.
log.dir list /tmp/kafka-logs * high ro
    Data directory, if log.dirs is not set.
log.dirs list null * high ro
    Data directories. A new partition goes to the directory with the fewest partitions.
log.flush.interval.messages long 9223372036854775807 1.. high cluster
    Number of records of a partition after which they are flushed to disk.
log.flush.interval.ms long null * high cluster
    Longest time until written data is flushed to disk; by default log.flush.scheduler.interval.ms.
log.flush.offset.checkpoint.interval.ms int 60000 0.. high ro
    How often the recovery-point checkpoint is written.
log.flush.scheduler.interval.ms long 9223372036854775807 * high ro
    The flush interval if log.flush.interval.ms is not set.
log.flush.start.offset.checkpoint.interval.ms int 60000 0.. high ro
    How often the checkpoint of log start offsets is written.
log.index.interval.bytes int 4096 0.. medium cluster
    Bytes of log between two entries of an offset index.
log.index.size.max.bytes int 10485760 4.. medium cluster
    Largest size of an index; a full one also closes its segment.
log.initial.task.delay.ms long 30000 0.. low internal
    How long after the start background work on logs begins.
log.message.timestamp.after.max.ms long 3600000 0.. medium cluster
    How far a record's timestamp may be after the broker's time.
log.message.timestamp.before.max.ms long 9223372036854775807 0.. medium cluster
    How far a record's timestamp may be before the broker's time.
log.message.timestamp.type string CreateTime {CreateTime,LogAppendTime} medium cluster
    Source of a record's timestamp: the producer (CreateTime) or the broker (LogAppendTime).
log.preallocate boolean false * medium cluster
    Accepted for compatibility; files grow as they are written.
log.retention.bytes long -1 * high cluster
    Size of a partition at which its oldest segments are deleted; -1 means no limit.
log.retention.check.interval.ms long 300000 1.. medium ro
    How often retention looks for segments to delete.
log.retention.hours int 168 * high ro
    Age in hours at which records may be deleted, if log.retention.minutes and log.retention.ms are not set.
log.retention.minutes int null * high ro
    Age in minutes at which records may be deleted, if log.retention.ms is not set.
log.retention.ms long null * high cluster
    Age at which records may be deleted; -1 keeps them for ever.
log.roll.hours int 168 1.. high ro
    Age in hours at which a segment is closed, if log.roll.ms is not set.
log.roll.jitter.hours int 0 0.. high ro
    Largest random time that is subtracted from the rolling age, in hours.
log.roll.jitter.ms long null * high cluster
    Largest random time that is subtracted from the rolling age.
log.roll.ms long null * high cluster
    Age at which a segment is closed even if it is not full.
log.segment.bytes int 1073741824 1048576.. high cluster
    Size at which a segment is closed and a new one begins.
log.segment.delete.delay.ms long 60000 0.. high cluster
    Time between the deletion of a segment from the log and the removal of its files.
max.connection.creation.rate int 2147483647 0.. medium cluster
    Largest number of new connections per second; more of them wait. A listener may have its own.
max.connections int 2147483647 0.. medium cluster
    Largest number of connections; the broker refuses more. A listener may have its own.
max.connections.per.ip int 2147483647 0.. medium cluster
    Largest number of connections from one IP address.
max.connections.per.ip.overrides string "" * medium cluster
    Exceptions to max.connections.per.ip, as address:count pairs.
max.incremental.fetch.session.cache.slots int 1000 0.. medium ro
    Largest number of fetch sessions; clients without a session send full fetch requests.
max.request.partition.size.limit int 2000 1.. medium ro
    Largest number of partitions in a DescribeTopicPartitions response.
message.max.bytes int 1048588 0.. high cluster
    Size of the largest accepted record batch, after compression.
metadata.log.dir string null * high ro
    Directory of the metadata log; by default the first of log.dirs.
metadata.log.max.record.bytes.between.snapshots long 20971520 1.. high ro
    Bytes of metadata after which a snapshot is written.
metadata.log.max.snapshot.interval.ms long 3600000 0.. high ro
    Time after which a snapshot is written if anything changed; 0 means never.
metadata.log.segment.bytes int 1073741824 8388608.. high ro
    Size at which a segment of the metadata log is closed.
metadata.log.segment.ms long 604800000 * high ro
    Age at which a segment of the metadata log is closed.
min.insync.replicas int 1 1.. high cluster
    Number of in-sync replicas that a write with acks=all needs; with fewer it fails. When a cluster starts for the first time, the controllers' value becomes that of all brokers; later, change it with `headrace config set broker all`.
node.id int required 0.. high ro
    This node's number in the cluster.
num.partitions int 1 1.. medium ro
    Number of partitions of a topic, if the request to create it does not say. The value of the active controller counts.
process.roles list required {broker,controller} high ro
    The roles of this node: broker, controller, or both. A node that is only a broker needs controller.quorum.voters.
producer.id.expiration.check.interval.ms int 600000 1.. low internal
    How often expired producer ids are removed.
producer.id.expiration.ms int 86400000 1.. low cluster
    How long a partition keeps the state of a producer that writes nothing.
queued.max.request.bytes long -1 * medium ro
    Memory of all requests in progress, in bytes, at which the broker stops reading from connections; -1 is the default.
quota.window.num int 11 1.. low ro
    Number of windows over which the rates of clients with quotas are measured.
quota.window.size.seconds int 1 1.. low ro
    Length of a window over which the rates of clients with quotas are measured.
replica.fetch.max.bytes int 1048576 0.. medium ro
    Records of one partition that a follower fetches at once, in bytes.
replica.fetch.min.bytes int 1 * high ro
    Bytes that a leader has to have before it answers a follower's fetch. Headrace answers as soon as there is anything.
replica.fetch.response.max.bytes int 10485760 0.. medium ro
    Size of an answer to a follower's fetch, in bytes.
replica.fetch.wait.max.ms int 500 * high ro
    How long a follower's fetch waits at the leader for records.
replica.high.watermark.checkpoint.interval.ms long 5000 * high ro
    How often the checkpoint of high watermarks is written.
replica.lag.time.max.ms long 30000 * high ro
    How long a follower may be behind the leader before it leaves the in-sync replicas.
replica.socket.timeout.ms int 30000 * high ro
    How long a follower waits for the answer to a fetch.
sasl.enabled.mechanisms list GSSAPI * medium ro
    Mechanisms of SASL listeners: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512. The default, Kafka's own, is not supported, so a SASL listener needs this setting.
sasl.jaas.config password null * medium ro
    As listener.name.<name>.<mechanism>.sasl.jaas.config: users of PLAIN with their passwords (without any, passwords are checked by the users' SCRAM credentials), and username and password with which this node logs in at such a listener of the others.
sasl.login.refresh.buffer.seconds short 300 * medium broker
    How long before a token's end the next one is fetched at the latest, if a node logs in at others with OAUTHBEARER and tokens live long enough for it.
sasl.login.refresh.min.period.seconds short 60 * medium broker
    How long a node waits at least before it fetches its next token, if tokens live long enough for it.
sasl.login.refresh.window.factor double 0.8 * medium broker
    Share of a token's lifetime after which a node fetches its next one.
sasl.login.refresh.window.jitter double 0.05 * medium broker
    Up to this share of the lifetime later, drawn each time.
sasl.login.retry.backoff.max.ms long 10000 * low ro
    Longest wait before a token that could not be fetched is fetched again.
sasl.login.retry.backoff.ms long 100 * low ro
    First wait before a token that could not be fetched is fetched again; it doubles each time.
sasl.mechanism.controller.protocol string GSSAPI * high ro
    How nodes log in at controllers' SASL listeners: PLAIN, OAUTHBEARER, or SCRAM with a single controller. The default, Kafka's own, is not supported.
sasl.mechanism.inter.broker.protocol string GSSAPI * medium broker
    How brokers log in at each other's SASL listener: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. The default, Kafka's own, is not supported.
sasl.oauthbearer.client.credentials.client.id string null * medium ro
    Who this node is at the identity provider that hands out its tokens (OAuth 2.0 client credentials).
sasl.oauthbearer.client.credentials.client.secret password null * medium ro
    The secret that goes with sasl.oauthbearer.client.credentials.client.id.
sasl.oauthbearer.clock.skew.seconds int 30 * low ro
    How much the clocks of the identity provider and of this broker may differ.
sasl.oauthbearer.expected.audience list "" * high ro
    Audiences of which a token must name one (its claim aud). If it is empty, tokens that name an audience are refused.
sasl.oauthbearer.expected.issuer string null * high ro
    Who must have issued a token (its claim iss).
sasl.oauthbearer.jwks.endpoint.refresh.ms long 3600000 * low ro
    How often the keys of the identity provider are fetched.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms long 10000 * low ro
    Longest wait before keys that could not be fetched are fetched again.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms long 100 * low ro
    First wait before keys that could not be fetched are fetched again; it doubles each time.
sasl.oauthbearer.jwks.endpoint.url string null * medium ro
    Where the keys of the identity provider are (a JSON Web Key Set): https://…, file:///…, or http:// with an address of this machine.
sasl.oauthbearer.scope string null * medium ro
    The scope that this node asks the identity provider for.
sasl.oauthbearer.scope.claim.name string scope * low ro
    Claim with the scopes of a token.
sasl.oauthbearer.sub.claim.name string sub * low ro
    Claim with the name of a token's owner, which becomes the client's principal.
sasl.oauthbearer.token.endpoint.url string null * medium ro
    Where the token comes from with which this node logs in at others by OAUTHBEARER: https://… of an identity provider, http:// with an address of this machine, or file:///… with a token.
sasl.server.max.receive.size int 524288 * medium ro
    Size of the largest request before the login.
security.inter.broker.protocol string PLAINTEXT {PLAINTEXT,SSL,SASL_PLAINTEXT,SASL_SSL} medium ro
    Security protocol of the listener that brokers use among each other, which then has the same name; instead of inter.broker.listener.name.
socket.listen.backlog.size int 50 1.. medium ro
    Number of connections that the kernel queues until the broker accepts them.
socket.receive.buffer.bytes int 102400 * high ro
    Size of a socket's receive buffer; -1 is the system's default.
socket.request.max.bytes int 104857600 1.. high ro
    Size of the largest request; the broker closes the connection after a larger one.
socket.send.buffer.bytes int 102400 * high ro
    Size of a socket's send buffer; -1 is the system's default.
ssl.allow.dn.changes boolean false * low ro
    Whether a new certificate that is loaded while the broker runs may have another subject than the one before.
ssl.allow.san.changes boolean false * low ro
    Whether a new certificate that is loaded while the broker runs may lack alternative names of the one before.
ssl.cipher.suites list "" * medium ro
    Cipher suites of TLS 1.2, by OpenSSL's names; by default those that OpenSSL considers safe.
ssl.client.auth string none {required,requested,none} medium ro
    Whether clients of a TLS listener show a certificate: `required`, `requested` (they may), `none`.
ssl.enabled.protocols list TLSv1.2,TLSv1.3 * medium ro
    Versions of TLS that listeners accept: TLSv1.2, TLSv1.3 or both.
ssl.endpoint.identification.algorithm string https * low broker
    Whether a node that connects to another one checks that its certificate is valid for the name or address in use: https, or empty for no.
ssl.key.password password null * medium broker
    The password of the private key, if it is encrypted.
ssl.keystore.certificate.chain password null * medium broker
    The certificate of a TLS listener as PEM text, with those of the authorities in between.
ssl.keystore.key password null * medium broker
    The private key of a TLS listener as PEM text.
ssl.keystore.location string null * medium broker
    A PEM file with certificate and private key of a TLS listener. It may have several, each key with its certificates: clients get the one for the host that they name (SNI).
ssl.principal.mapping.rules string DEFAULT * low ro
    From the subject of a client's certificate to the name of its principal: DEFAULT, or RULE:pattern/replacement/[LU], comma-separated. Patterns are those of RE2.
ssl.truststore.certificates password null * medium broker
    The authorities whose certificates clients may show, as PEM text.
ssl.truststore.location string null * medium broker
    A PEM file with the authorities whose certificates clients may show.
unclean.leader.election.enable boolean false * high cluster
    Whether a replica that is not in sync may become leader; acknowledged records may be lost.
headrace.sealed.compression.type string none {none,gzip,snappy,lz4,zstd} medium cluster
    Codec with which closed segments are recompressed in the background, for topics that do not set it.
headrace.tenants list "" * medium cluster
    Tenants as NAME or NAME:PARTITIONS: topics whose names begin with NAME and a dot may have so many partitions together. `headrace tenant` sets it for all brokers.
headrace.validate.records boolean false * medium cluster
    Whether the broker decodes every produced batch and rejects invalid records, for topics that do not set it.
headrace.audit.log string auto {auto,on,off} medium ro
    Whether there is an audit log. `auto`: if there is an authorizer, or a listener with logins.
headrace.audit.log.files int 8 1.. low ro
    Largest number of files of the audit log, with the current one.
headrace.audit.log.level string info {info,debug} low ro
    `info`: logins, refusals and changes. `debug`: also requests that are allowed, except on fast paths.
headrace.audit.log.max.bytes int 16777216 65536.. low ro
    Size at which a new file of the audit log is begun.
headrace.audit.log.path string null * medium ro
    The file of the audit log; by default audit.log in the directory of the metadata log.
headrace.cluster.id string null * high ro
    Id of the cluster for a new data directory; by default computed from controller.quorum.voters, or random if that is empty.
headrace.oauthbearer.unsigned.tokens boolean false * low ro
    Takes tokens without a signature on listeners with OAUTHBEARER, which anybody can make: for tests, and only on addresses of this machine.
headrace.open.files.max int 2000 16.. medium ro
    Largest number of open segment and index files of all partitions; the least recently used are closed.
headrace.metrics.host string 127.0.0.1 * low ro
    Address of the metrics and the schema registry, with headrace.metrics.port; with the default only programs on the same computer can reach them.
headrace.network.core boolean true * low ro
    Whether the compiled network core serves the listeners (Linux only): many small requests are faster. Otherwise, and in an installation without compiled modules, asyncio's transports serve them.
headrace.stray.retention.ms long 2592000000 -1.. medium ro
    How long the node keeps a partition directory that the metadata does not know; -1 means until `headrace strays --remove` deletes it.
headrace.metrics.port int -1 -1..65535 low ro
    Port of the metrics and the schema registry; -1 turns them off, 0 takes a free port. headrace.http.listeners says more.
headrace.http.hosts list "" * low ro
    Names by which HTTP clients may address this node (their Host header), with or without a port. Without any, a listener on an address of this machine alone accepts the names of it, as localhost, and others accept every name.
headrace.http.listeners list "" * low ro
    Addresses of the metrics and the schema registry, as http://host:port and https://host:port, one of each at the most. The certificate of https is set as for other listeners, with the prefix listener.name.https. or without one.
headrace.http.login.required boolean null * medium ro
    Whether HTTP clients have to log in; by default if there is an authorizer.
headrace.http.metrics.anonymous boolean false * low ro
    Whether the metrics are served without a login and without a right, if headrace.http.login.required or an authorizer would ask for one.
"""
