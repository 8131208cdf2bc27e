"""Watch a goal: its events applied as they come, and the view for people at any moment."""

from dataclasses import dataclass, field
from datetime import datetime

from contracts.events import AnyEvent
from contracts.replay import apply
from contracts.replay_state import GoalState
from contracts.store.follow import Follower
from contracts.store.reader import Reader
from contracts.words import Phase
from projection.view import View, view_of


@dataclass
class Watched:
    """A goal that is followed. Not for threads."""

    reader: Reader
    follower: Follower
    state: GoalState = field(init=False)

    def __post_init__(self) -> None:
        self.state = GoalState(goal_id=self.reader.goal_id)

    def catch_up(self) -> list[AnyEvent]:
        """Read and apply what came since the last call.

        Raises:
            StoreError: The store does not answer.
        """
        fresh = self.follower.catch_up()
        for event in fresh:
            apply(self.state, event)  # what does not fit is for `labmates verify` to name
        return fresh

    def view(self) -> View:
        """Give the view of now, by the store's clock, with what each lane says of itself."""
        said = {agent_id: self.reader.lane(agent_id) for agent_id in self.state.roster}
        return view_of(self.state, self.reader.now(), lanes=said)

    def is_over(self) -> bool:
        """Tell whether the goal is done or escalated."""
        return self.view().phase in {Phase.DONE, Phase.ESCALATE}


def watch(reader: Reader) -> Watched:
    """Follow a goal from its first event."""
    return Watched(reader, Follower(reader))


def clock(since: datetime | None, at: datetime | None) -> str:
    """Give the time from one moment to another as `1:24` or `1:02:03`."""
    seconds = int((at - since).total_seconds()) if since and at else 0
    minutes, seconds = divmod(max(0, seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
