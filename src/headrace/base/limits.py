"""Limits that are not settings, with their reasons and what happens when they are reached."""

# --- frames and connections -------------------------------------------------------------------------
# Kafka's socket.request.max.bytes default. A longer frame closes the connection before it is read.
FRAME_BYTES_MAX = 100 * 1024 * 1024

# The same for requests that carry no records. Decoded, the worst of them (arrays of tiny structs) takes 56
# times its bytes, so this is some 450 MB for a moment; a request for 100,000 topics has about 5 MB.
FRAME_WITHOUT_RECORDS_BYTES_MAX = 8 * 1024 * 1024

# The same for requests that a broker forwards to the controller: they have to fit into an Envelope.
FORWARDED_BYTES_MAX = FRAME_WITHOUT_RECORDS_BYTES_MAX - 64 * 1024

# Longer ones without records are decoded in steps, others served in between: at a microsecond for each
# element of at least ten bytes, this is three milliseconds.
LONG_FRAME_BYTES = 32 * 1024

# Such frames that wait to be decoded, of all connections together. At the limit one is decoded at once, and
# the others wait meanwhile.
LONG_FRAMES_BYTES_MAX = 64 * 1024 * 1024

# Requests of one connection that were accepted but not answered. librdkafka allows a million in flight but
# keeps below 100 in practice; Java defaults to 5. At the limit the connection is not read from until
# an answer leaves.
UNANSWERED_PER_CONNECTION_MAX = 100

# Answers that are known and wait for one before them on their connection, such as that of a long poll. At the
# limit the connection is not read from until they leave; one answer may be larger, and all settings of ten
# thousand topics have 25 MB. Clients that pipeline have kilobytes waiting.
QUEUED_ANSWER_BYTES_PER_CONNECTION_MAX = 1024 * 1024

# The same of all connections together: a quarter of a gigabyte is what a small host can spare. At the limit
# the connection with the most is closed, which is not one that pipelines small requests.
QUEUED_ANSWER_BYTES_MAX = 256 * 1024 * 1024

# Long answers that are put together in slices at the same time; each may become 25 MB. Others wait for their
# turn, and those of one connection follow each other.
SLICED_REPLIES_MAX = 8

# Parked requests of the whole node (long polls, acks=all waits). A parked fetch costs about 1 KB and one
# per partition, so this is some 50 MB at the worst. At the limit a fetch is answered at once with what there
# is, and a wait for a write is still accepted, since its record is already in the log.
PARKED_REQUESTS_MAX = 50_000

# How long a fetch may wait at the most, whatever its max_wait says (an int32 has 24 days): an empty answer
# costs its client one more request, and a client that vanished without a word is not waited for much longer.
FETCH_WAIT_MS_MAX = 10 * 60 * 1000

# Answers waiting in one connection's write buffer before it is not read from any more, and before more of a
# file is read for it: a client that does not read its answers needs no further ones, and thousands of them
# must not fill the memory.
UNSENT_BYTES_PER_CONNECTION_MAX = 64 * 1024

# Answers in memory that wait for clients that do not take them, beyond two megabytes of each and of all
# connections together: all settings of ten thousand topics have 25 MB, and thousands of clients can ask for
# them and read nothing. At the limit the connection with the most is closed.
UNSENT_BYTES_MAX = 512 * 1024 * 1024

# --- names and counts ---------------------------------------------------------------------------------
# Characters of names that coordinators keep: groups, their members and protocols, transactional ids, sinks.
# They are kept in memory and in records, hashed, and told to others, maybe in an older version, whose strings
# end at 32,767 bytes. At the limit: INVALID_GROUP_ID or INVALID_REQUEST.
COORDINATOR_NAME_CHARACTERS_MAX = 4_096
TOPIC_NAME_CHARACTERS_MAX = 249  # Kafka's; leaves room for "-<partition>" and ".deleted" in a file name

# Partitions created by one request. Each is a directory and several records of metadata; Kafka has no such
# limit and takes minutes. At the limit: POLICY_VIOLATION with the figure.
PARTITIONS_PER_REQUEST_MAX = 20_000

# Partitions of the whole cluster. One that is written to takes some 10 KB of memory, three files and a place
# in every snapshot of the metadata: this is a gigabyte, and ten times what we are made for. Kafka has no such
# limit. At the limit: POLICY_VIOLATION with the figure.
PARTITIONS_MAX = 100_000

# What one member of a group may bring along: its subscription in JoinGroup, or its assignment in SyncGroup. A
# consumer of a thousand topics has 30 KB. Kafka's ends at the 1 MiB of a group's record. At the limit:
# INVALID_REQUEST.
MEMBER_BYTES_MAX = 1024 * 1024

# The same for all members of all groups, plus an overhead for each: they stay until their session is over,
# half an hour at the most, whether or not their client is still there. At the limit nobody joins:
# GROUP_MAX_SIZE_REACHED. Members that have joined and bring no more than the last figure stay, so that
# clients that fill the memory do not stop the groups of others. How many members a single group has is a
# setting, group.max.size.
MEMBERS_BYTES_MAX = 256 * 1024 * 1024
MEMBER_OVERHEAD_BYTES = 1024
MEMBER_STAYS_BYTES_MAX = 4 * 1024

# Characters of a client id that quotas remember. A client can say 32,767 of them, and another id in each
# request. Longer ones are looked up each time, and their meters keep a hash.
QUOTA_CLIENT_ID_CHARACTERS_MAX = 250

# Characters of a config's key or value. Kafka's; a value is kept in memory and in every snapshot. At the
# limit: INVALID_CONFIG.
CONFIG_CHARACTERS_MAX = 32_767

# Characters of a message beside an error code. Messages quote what the client sent, and a string of the older
# versions ends at 32,767 bytes. At the limit it is cut.
MESSAGE_CHARACTERS_MAX = 1_000

# Settings told by one DescribeConfigs: ten thousand topics with all they have, some 25 MB of answer. At the
# limit the resources that do not fit get POLICY_VIOLATION; a client asks for them once more.
CONFIGS_PER_RESPONSE_MAX = 400_000

# Fetch sessions cached (KIP-227), Kafka's max.incremental.fetch.session.cache.slots.
FETCH_SESSIONS_MAX = 1_000

# Partitions that all fetch sessions together remember, about 410 bytes each: a thousand consumers of 300
# partitions, or 125 MB. At the limit a client gets no session and goes on with full fetches.
FETCH_SESSION_PARTITIONS_MAX = 300_000

# Elements of all arrays of one request: topics, partitions, replicas. Each costs about 10 microseconds
# until it is answered, and everybody else waits meanwhile; a fetch of 20,000 partitions in as many topics
# still gets through. Without it 8 MB of short names would be millions of objects, and 100 MB of partitions
# without records gigabytes of them. At the limit the connection is closed.
ELEMENTS_PER_REQUEST_MAX = 40_000

# Parts into which SplitRanges cuts one range of offsets: more tasks than any cluster of readers has. At the
# limit the parts become larger.
SPLITS_PER_RANGE_MAX = 10_000

# --- records --------------------------------------------------------------------------------------------
# What one compressed batch may become when it is opened: bombs are refused beyond either bound.
UNCOMPRESSED_BATCH_BYTES_MAX = 256 * 1024 * 1024

# The same for a batch that the broker opens while it is produced, since others wait in the append queue:
# so many times the topic's max.message.bytes, but at least the second figure. Producers count a batch
# uncompressed, so that an honest one stays near max.message.bytes itself. At the limit: INVALID_RECORD.
PRODUCED_BATCH_OPENED_RATIO_MAX = 8
PRODUCED_BATCH_OPENED_BYTES_MIN = 8 * 1024 * 1024
COMPRESSION_RATIO_MAX = 2_000

# Records of a refused batch that are named in the answer (KIP-467), some 150 bytes each. Kafka has no such
# limit and names a million of them in 150 MB. At the limit the first ones are named.
RECORD_ERRORS_MAX = 10_000

# What is opened inside the event loop, where nobody else is served meanwhile: some 0.3 ms, with any codec
# and any content. Compressing again takes ten times as long. Beyond, another process
# opens the batch while it waits in its partition's append queue.
OPENED_INLINE_BYTES_MAX = 128 * 1024
OPENED_INLINE_RECORDS_MAX = 1_000
RECODED_INLINE_BYTES_MAX = 16 * 1024

# Batches that wait in append queues, as bytes with an overhead for each; and requests that wait for the
# controller. A connection that has so much waiting is not read from; when all connections together have,
# a further batch is answered with REQUEST_TIMED_OUT, which producers try again.
HELD_BYTES_PER_CONNECTION_MAX = 8 * 1024 * 1024
HELD_BYTES_MAX = 256 * 1024 * 1024
HELD_OVERHEAD_BYTES = 1024

# Answers of leaders with large batches that a follower keeps in memory while it writes them in pieces. What
# comes beyond that is written at once: each partition may have such an answer, and a batch may have 100 MB.
KEPT_ANSWER_BYTES_MAX = 64 * 1024 * 1024
