"""Settings of a topic; after `<` the broker keys that give its default. See `definition.py` for the notation."""

# ruff: noqa: E501 (one key per line)

TABLE = """
cleanup.policy list delete {compact,delete} medium topic < log.cleanup.policy
    What happens to old data: `delete` removes segments after retention, `compact` keeps the newest record of
    each key. Both can be combined; an empty list keeps everything.
compression.gzip.level int -1 1..9|-1 medium topic < compression.gzip.level
    Compression level when the broker itself compresses with gzip; -1 is the codec's default.
compression.lz4.level int 9 1..17 medium topic < compression.lz4.level
    Compression level when the broker itself compresses with lz4.
compression.type string producer {uncompressed,zstd,lz4,snappy,gzip,producer} medium topic < compression.type
    Codec of stored batches; `producer` keeps the producer's codec, `uncompressed` decompresses them.
compression.zstd.level int 3 -131072..22 medium topic < compression.zstd.level
    Compression level when the broker itself compresses with zstd.
delete.retention.ms long 86400000 0.. medium topic < log.cleaner.delete.retention.ms
    How long a compacted topic keeps the tombstone of a deleted key.
file.delete.delay.ms long 60000 0.. medium topic < log.segment.delete.delay.ms
    Time between the deletion of a segment from the log and the removal of its files, so that readers can finish.
flush.messages long 9223372036854775807 1.. medium topic < log.flush.interval.messages
    Number of records after which they are flushed to disk; with 1 every batch is flushed before it is acknowledged.
flush.ms long 9223372036854775807 0.. medium topic < log.flush.interval.ms
    Longest time until written data is flushed to disk.
follower.replication.throttled.replicas list "" replicas medium topic
    Replicas whose fetching is throttled, as partition:broker pairs, or * for all.
index.interval.bytes int 4096 0.. medium topic < log.index.interval.bytes
    Bytes of log between two entries of the offset index; a smaller value makes searches faster and indexes larger.
internal.segment.bytes int null * medium internal
    Segment size without the lower bound of segment.bytes; for tests.
leader.replication.throttled.replicas list "" replicas medium topic
    Replicas from which fetching is throttled, as partition:broker pairs, or * for all.
local.retention.bytes long -2 -2.. medium topic < log.local.retention.bytes
    Local part of a tiered log in bytes; -2 follows retention.bytes. Tiered storage is not available.
local.retention.ms long -2 -2.. medium topic < log.local.retention.ms
    Local part of a tiered log in time; -2 follows retention.ms. Tiered storage is not available.
max.compaction.lag.ms long 9223372036854775807 1.. medium topic < log.cleaner.max.compaction.lag.ms
    A record is compacted at the latest this long after it was written.
max.message.bytes int 1048588 0.. medium topic < message.max.bytes
    Size of the largest accepted record batch, after compression.
message.timestamp.after.max.ms long 3600000 0.. medium topic < log.message.timestamp.after.max.ms
    How far a record's timestamp may be after the broker's time.
message.timestamp.before.max.ms long 9223372036854775807 0.. medium topic < log.message.timestamp.before.max.ms
    How far a record's timestamp may be before the broker's time.
message.timestamp.type string CreateTime {CreateTime,LogAppendTime} medium topic < log.message.timestamp.type
    Source of a record's timestamp: the producer (CreateTime) or the broker (LogAppendTime).
min.cleanable.dirty.ratio double 0.5 0..1 medium topic < log.cleaner.min.cleanable.ratio
    Share of the log that must be uncompacted before the cleaner compacts it.
min.compaction.lag.ms long 0 0.. medium topic < log.cleaner.min.compaction.lag.ms
    A record stays uncompacted for at least this long.
min.insync.replicas int 1 1.. medium topic < min.insync.replicas
    Number of in-sync replicas that a write with acks=all needs; with fewer it fails.
preallocate boolean false * medium topic < log.preallocate
    Accepted for compatibility; files grow as they are written.
remote.log.copy.disable boolean false * medium topic
    Stops copying to tiered storage. Tiered storage is not available.
remote.log.delete.on.disable boolean false * medium topic
    Deletes tiered data when tiering is switched off. Tiered storage is not available.
remote.storage.enable boolean false * medium topic
    Tiered storage for the topic; it is not available, so only false is accepted.
retention.bytes long -1 * medium topic < log.retention.bytes
    Size of a partition at which its oldest segments are deleted; -1 means no limit.
retention.ms long 604800000 -1.. medium topic < log.retention.ms log.retention.minutes log.retention.hours
    Age at which records may be deleted; -1 keeps them for ever.
segment.bytes int 1073741824 1048576.. medium topic < log.segment.bytes
    Size at which a segment is closed and a new one begins.
segment.index.bytes int 10485760 4.. medium topic < log.index.size.max.bytes
    Largest size of an index; a full index also closes its segment.
segment.jitter.ms long 0 0.. medium topic < log.roll.jitter.ms log.roll.jitter.hours
    Largest random time that is subtracted from segment.ms, so that partitions do not roll at the same time.
segment.ms long 604800000 1.. medium topic < log.roll.ms log.roll.hours
    Age at which a segment is closed even if it is not full, so that retention can delete it.
unclean.leader.election.enable boolean false * medium topic < unclean.leader.election.enable
    Whether a replica that is not in sync may become leader if there is no other; acknowledged records may be
    lost.
headrace.retention.waits.for list "" * medium topic
    Groups that retention waits for: records that one of them has not committed are not deleted by age or size
    before a cap is reached. The offsets of these groups for the topic do not expire.
headrace.retention.waits.max.bytes long -1 -1.. medium topic
    Size of a partition at which retention no longer waits for groups; records that are lost to a group are
    reported as an error. -1 means no limit.
headrace.retention.waits.max.ms long -1 -1.. medium topic
    Age of records at which retention no longer waits for groups; records that are lost to a group are reported
    as an error. -1 means no limit.
headrace.sealed.compression.type string none {none,gzip,snappy,lz4,zstd} medium topic < headrace.sealed.compression.type
    Codec with which closed segments are recompressed in the background; none keeps them as they were written.
headrace.validate.records boolean false * medium topic < headrace.validate.records
    Whether the broker decodes every produced batch and rejects invalid records; this costs CPU time.
"""
