"""Persistent state of a voter: the epoch that it knows, its leader, and its vote.

It is stored in Kafka's own file, `quorum-state` version 1, a line of JSON. The file is written and synced
before the node sends anything that depends on it (Raft §5.2: a voter that forgets its vote may vote twice).
"""

import json
from dataclasses import dataclass

from headrace.base.ids import id_from_text, id_text

FILE = "quorum-state"
NOBODY = -1
NO_DIRECTORY = bytes(16)
DATA_VERSION = 1


class BadQuorumState(Exception):
    """The file is not one that this version understands."""


@dataclass(slots=True, frozen=True)
class QuorumState:
    leader_id: int = NOBODY
    leader_epoch: int = 0
    voted_id: int = NOBODY
    voted_directory_id: bytes = NO_DIRECTORY

    def to_bytes(self) -> bytes:
        fields = {
            "leaderId": self.leader_id,
            "leaderEpoch": self.leader_epoch,
            "votedId": self.voted_id,
            "votedDirectoryId": id_text(self.voted_directory_id),
            "data_version": DATA_VERSION,
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "QuorumState":
        try:
            fields = json.loads(data)
            version = fields["data_version"]
            if version not in (0, DATA_VERSION):
                raise BadQuorumState(f"quorum-state has data_version {version}, not {DATA_VERSION}")
            voted_directory = fields.get("votedDirectoryId")
            return cls(
                leader_id=int(fields["leaderId"]),
                leader_epoch=int(fields["leaderEpoch"]),
                voted_id=int(fields["votedId"]),
                voted_directory_id=id_from_text(voted_directory) if voted_directory else NO_DIRECTORY,
            )
        except (ValueError, KeyError, TypeError) as error:
            raise BadQuorumState(f"quorum-state cannot be parsed: {error!r}") from error
