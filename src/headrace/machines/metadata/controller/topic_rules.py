"""Settings of a topic that decide about its leaders."""

MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION = "unclean.leader.election.enable"


class TopicRules:
    __slots__ = ("allows_unclean", "min_insync_replicas", "tracks_eligible")

    def __init__(self, min_insync_replicas: int, *, allows_unclean: bool, tracks_eligible: bool) -> None:
        self.min_insync_replicas = min_insync_replicas
        self.allows_unclean = allows_unclean
        self.tracks_eligible = tracks_eligible  # the feature eligible.leader.replicas.version is on

    def with_unclean(self) -> "TopicRules":
        """The same, if somebody asks for an unclean election."""
        return TopicRules(self.min_insync_replicas, allows_unclean=True, tracks_eligible=self.tracks_eligible)
