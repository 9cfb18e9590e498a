"""Settings of a broker that Headrace acts on. See `definition.py` for the notation."""

# ruff: noqa: E501 (one key per line)

TABLE = """
advertised.listeners list null * high ro
    Addresses told to clients, one per listener; empty means the listeners themselves.
auto.create.topics.enable boolean true * high ro
    Creates a topic when a client asks for the metadata of one that is missing and allows it.
broker.id int -1 * high ro
    The old name of node.id.
broker.rack string null * medium ro
    Where this broker stands; replicas are spread over racks.
compression.gzip.level int -1 1..9|-1 medium cluster
    Level used when the broker itself writes gzip; -1 is the codec's own default.
compression.lz4.level int 9 1..17 medium cluster
    Level used when the broker itself writes lz4.
compression.type string producer {uncompressed,zstd,lz4,snappy,gzip,producer} high cluster
    Codec of stored batches; `producer` keeps whatever the producer chose.
compression.zstd.level int 3 -131072..22 medium cluster
    Level used when the broker itself writes zstd.
connections.max.idle.ms long 600000 * medium ro
    Closes a connection that sent nothing for this long.
controller.listener.names list required * high ro
    Listeners that only controllers use; clients never see them.
controller.quorum.bootstrap.servers list "" * high ro
    Addresses of the metadata quorum, as host:port; they must belong to this node, since there are no clusters yet.
controller.quorum.voters list "" * high ro
    The voters of a static metadata quorum, as id@host:port; only this node is accepted, since there are no clusters yet.
default.replication.factor int 1 * medium ro
    Replicas of a topic whose creator did not say how many.
delete.topic.enable boolean true * high ro
    Allows topics to be deleted.
fetch.max.bytes int 57671680 1024.. medium ro
    Most bytes in the answer to one fetch, whatever the client asks for.
inter.broker.listener.name string null * medium ro
    Listener by which brokers talk to each other.
internal.metadata.log.segment.bytes int null * low internal
    Segment size of the metadata log without its lower bound; for tests.
listener.security.protocol.map string SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT * low broker
    Security protocol of each listener name. Listeners must be PLAINTEXT; entries for names that are not among the listeners may be anything.
listeners list PLAINTEXT://:9092 * high broker
    Addresses to listen on, as NAME://host:port; port 0 takes a free one.
log.cleaner.backoff.ms long 15000 0.. medium cluster
    Wait before looking again when no log needed cleaning.
log.cleaner.dedupe.buffer.size long 134217728 * medium cluster
    Memory of the map from keys to offsets; it bounds how many keys one cleaning covers.
log.cleaner.delete.retention.ms long 86400000 0.. medium cluster
    How long compacted topics still show the tombstone of a deleted key.
log.cleaner.enable boolean true * medium ro
    Compacts topics that ask for it.
log.cleaner.io.buffer.load.factor double 0.9 * medium cluster
    How full the map from keys to offsets may become.
log.cleaner.io.buffer.size int 524288 0.. medium cluster
    Bytes the cleaner reads and writes at a time.
log.cleaner.io.max.bytes.per.second double 1.7976931348623157E308 * medium cluster
    Most bytes per second that cleaning reads and writes.
log.cleaner.max.compaction.lag.ms long 9223372036854775807 1.. medium cluster
    A record of a compacted topic is compacted at the latest this long after it was written.
log.cleaner.min.cleanable.ratio double 0.5 0..1 medium cluster
    Share of a log that must be uncompacted before the cleaner takes it up.
log.cleaner.min.compaction.lag.ms long 0 0.. medium cluster
    A record stays uncompacted for at least this long.
log.cleaner.threads int 1 0.. medium cluster
    How many logs are cleaned at the same time.
log.cleanup.policy list delete {compact,delete} medium cluster
    What happens to old data of topics that do not say it themselves: delete, compact, or both.
log.dir list /tmp/kafka-logs * high ro
    Where data lies, when log.dirs is not given.
log.dirs list null * high ro
    Directories in which partitions are kept; new ones go where the fewest are.
log.flush.interval.messages long 9223372036854775807 1.. high cluster
    Force data to disk after this many records of a partition.
log.flush.interval.ms long null * high cluster
    Force data to disk at the latest this long after it was written; null leaves it to
    log.flush.scheduler.interval.ms.
log.flush.offset.checkpoint.interval.ms int 60000 0.. high ro
    How often recovery points are written down.
log.flush.scheduler.interval.ms long 9223372036854775807 * high ro
    The flush interval when log.flush.interval.ms is not given.
log.flush.start.offset.checkpoint.interval.ms int 60000 0.. high ro
    How often log start offsets are written down.
log.index.interval.bytes int 4096 0.. medium cluster
    Bytes of log between two entries of an offset index.
log.index.size.max.bytes int 10485760 4.. medium cluster
    Largest size of an index; a full one also closes its segment.
log.initial.task.delay.ms long 30000 0.. low internal
    Wait after the start before background work on logs begins.
log.message.timestamp.after.max.ms long 3600000 0.. medium cluster
    How far a record's timestamp may lie in the broker's future.
log.message.timestamp.before.max.ms long 9223372036854775807 0.. medium cluster
    How far a record's timestamp may lie in the broker's past.
log.message.timestamp.type string CreateTime {CreateTime,LogAppendTime} medium cluster
    Whose clock stamps a record: CreateTime is the producer's, LogAppendTime the broker's.
log.preallocate boolean false * medium cluster
    Accepted for compatibility; files grow as they are written.
log.retention.bytes long -1 * high cluster
    Largest size of a partition before its oldest segments go; -1 means no limit.
log.retention.check.interval.ms long 300000 1.. medium ro
    How often logs are looked through for segments to retire.
log.retention.hours int 168 * high ro
    Age in hours at which records may be deleted, unless minutes or milliseconds are given.
log.retention.minutes int null * high ro
    Age in minutes at which records may be deleted, unless milliseconds are given.
log.retention.ms long null * high cluster
    Age at which records may be deleted; -1 keeps them for ever.
log.roll.hours int 168 1.. high ro
    Age in hours at which a segment is closed, unless milliseconds are given.
log.roll.jitter.hours int 0 0.. high ro
    Random part taken off the rolling age, in hours.
log.roll.jitter.ms long null * high cluster
    Random part taken off the rolling age.
log.roll.ms long null * high cluster
    Age at which a segment is closed although it is not full.
log.segment.bytes int 1073741824 1048576.. high cluster
    Size at which a segment is closed and the next one begun.
log.segment.delete.delay.ms long 60000 0.. high cluster
    Wait between retiring a segment and removing its files.
max.connections int 2147483647 0.. medium cluster
    Most connections at once; one more is refused.
max.connections.per.ip int 2147483647 0.. medium cluster
    Most connections from one address.
max.connections.per.ip.overrides string "" * medium cluster
    Exceptions to max.connections.per.ip, as address:count pairs.
max.incremental.fetch.session.cache.slots int 1000 0.. medium ro
    Fetch sessions remembered; beyond them clients send full fetches.
max.request.partition.size.limit int 2000 1.. medium ro
    Most partitions in one DescribeTopicPartitions answer.
message.max.bytes int 1048588 0.. high cluster
    Largest record batch accepted, after compression.
metadata.log.dir string null * high ro
    Where the metadata log lies; the first of log.dirs unless given.
metadata.log.max.record.bytes.between.snapshots long 20971520 1.. high ro
    Bytes of metadata after which a snapshot is written.
metadata.log.max.snapshot.interval.ms long 3600000 0.. high ro
    Time after which a snapshot is written if anything changed; 0 never does.
metadata.log.segment.bytes int 1073741824 8388608.. high ro
    Size at which a segment of the metadata log is closed.
metadata.log.segment.ms long 604800000 * high ro
    Age at which a segment of the metadata log is closed.
min.insync.replicas int 1 1.. high cluster
    Replicas in sync that an acks=all write needs; with fewer it is refused.
node.id int required 0.. high ro
    This node's number in the cluster.
num.partitions int 1 1.. medium ro
    Partitions of a topic whose creator did not say how many.
process.roles list required {broker,controller} high ro
    The roles of this node. It must be broker,controller or controller: a node that is only a broker needs a cluster to join, and there are no clusters yet.
producer.id.expiration.check.interval.ms int 600000 1.. low internal
    How often silent producers are looked for.
producer.id.expiration.ms int 86400000 1.. low cluster
    How long a partition remembers a silent idempotent producer.
queued.max.request.bytes long -1 * medium ro
    Bytes of all requests being worked on before connections are not read from; -1 takes the default.
replica.high.watermark.checkpoint.interval.ms long 5000 * high ro
    How often high watermarks are written down.
socket.listen.backlog.size int 50 1.. medium ro
    Connections the kernel keeps waiting to be accepted.
socket.receive.buffer.bytes int 102400 * high ro
    Kernel's receive buffer of a connection; -1 leaves it to the kernel.
socket.request.max.bytes int 104857600 1.. high ro
    Largest request; a longer one closes its connection.
socket.send.buffer.bytes int 102400 * high ro
    Kernel's send buffer of a connection; -1 leaves it to the kernel.
unclean.leader.election.enable boolean false * high cluster
    Lets a replica that is not in sync become leader; acknowledged records may be lost.
headrace.sealed.compression.type string none {none,gzip,snappy,lz4,zstd} medium cluster
    Codec to which closed segments are recompressed in the background, for topics that do not say it themselves.
headrace.validate.records boolean false * medium cluster
    Opens every produced batch and refuses one whose records do not decode, for topics that do not say it themselves.
headrace.cluster.id string null * high ro
    Name of the cluster for a directory that is new; a random one when it is not given.
headrace.open.files.max int 2000 16.. medium ro
    Segment and index files kept open at once, over all partitions; the least recently used are closed.
headrace.metrics.host string 127.0.0.1 * low ro
    Address of the metrics and the schema registry. They have no password; with the default address only this machine can reach them.
headrace.stray.retention.ms long 2592000000 -1.. medium ro
    How long the node keeps a partition directory that the metadata does not know; -1 keeps it until `headrace strays --remove`.
headrace.metrics.port int -1 -1..65535 low ro
    Port of the metrics and the schema registry; -1 serves none, 0 takes a free one.
"""
