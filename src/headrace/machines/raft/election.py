"""The roles of a voter that has no leader, or may have lost it: unattached, prospective, candidate, resigned.

A prospective voter asks whether it would win (pre-vote, KIP-996): the question changes no epoch, so a voter
that was cut off disturbs nobody when it comes back. A candidate has raised its epoch and voted for itself.
"""

from headrace.base.time import NEVER, Instant
from headrace.machines.raft.messages import EndEpoch, Vote
from headrace.machines.raft.voters import Voters


class Unattached:
    """Knows the epoch, and no leader in it. At `until` it asks whether it would win an election."""

    name = "unattached"
    grants_pre_votes = True

    def __init__(self, until: Instant) -> None:
        self.until = until

    def deadline(self) -> Instant:
        return self.until


class Poll:
    """Votes that are asked for, given and refused. A voter that did not answer is asked again."""

    def __init__(self, local: int, voters: Voters) -> None:
        self.needed = voters.votes_needed
        self.voters = len(voters.keys)
        self.granted = {local}
        self.refused: set[int] = set()
        self.failures: dict[int, int] = {}  # voters that did not answer, and how often
        self.asked: dict[int, Vote] = {}
        self.ask_again: dict[int, Instant] = {}

    @property
    def is_won(self) -> bool:
        return len(self.granted) >= self.needed

    @property
    def is_lost(self) -> bool:
        """The others together do not have the votes that are missing."""
        return self.voters - len(self.refused) < self.needed

    @property
    def is_hopeless(self) -> bool:
        """Somebody refused, and of those that can be reached too few are left."""
        reachable = self.voters - len(self.refused | self.failures.keys())
        return bool(self.refused) and reachable < self.needed

    def count(self, voter: int, *, is_granted: bool) -> None:
        self.failures.pop(voter, None)
        self.refused.discard(voter)
        (self.granted if is_granted else self.refused).add(voter)

    def failed(self, voter: int) -> int:
        """A voter did not answer; how often it did not before."""
        before = self.failures.get(voter, 0)
        self.failures[voter] = before + 1
        return before

    def next_question(self) -> Instant:
        return min(self.ask_again.values(), default=NEVER)


class Prospective:
    """Asks for pre-votes. At `until` it begins again."""

    name = "prospective"
    grants_pre_votes = True

    def __init__(self, poll: Poll, until: Instant) -> None:
        self.poll = poll
        self.until = until

    def deadline(self) -> Instant:
        return min(self.until, self.poll.next_question())


class Candidate:
    """Asks for votes in an epoch of its own. At `until` it gives up, and asks for pre-votes again. It keeps
    the same as Prospective; the quorum treats their polls differently, so each role has a class.
    """

    name = "candidate"
    grants_pre_votes = True

    def __init__(self, poll: Poll, until: Instant) -> None:
        self.poll = poll
        self.until = until

    def deadline(self) -> Instant:
        return min(self.until, self.poll.next_question())


class Resigned:
    """Led this epoch, and asks the others to elect a successor. At `until` it is an ordinary voter again."""

    name = "resigned"
    grants_pre_votes = True

    def __init__(self, farewells: dict[int, EndEpoch], until: Instant) -> None:
        self.farewells = farewells  # that are not answered yet
        self.until = until

    def deadline(self) -> Instant:
        return self.until
