"""The transaction coordinator of one shard: who owns an id, what its transaction holds, how it ends."""
