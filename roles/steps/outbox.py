"""Finished results on disk until the store has them: none is lost, and none is worked for twice.

A result is written to `LABMATES_HOME/goals/<goal>/outbox/<todo>-<fence>.json` before it is sent,
and removed when the store has answered. What a dead worker or an outage left there is sent by the
same agent's next step on that item, under the claim it then holds, as long as the item stands where
the result found it. What came too late goes on record as such, and its file to `outbox/refused/`.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import structlog

from contracts.canonical import canonical, sha256_hex
from contracts.errors import RefusedError
from contracts.store.decision import Reply
from contracts.store.writer import Held
from roles.steps.lane import Lane

log = structlog.get_logger()

LOST = frozenset({"stale_fence", "not_claimed"})
"""Refusals which say that the claim is over."""

_ELSEWHERE = frozenset({"store_changed", "goal_unknown"})
"""Refusals which say that the store is not the one of the claim; the result waits on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """What a step came to, ready to be sent.

    Attributes:
        fence: Of the claim under which it was made.
        kind: The type of the one record.
        to: The state that the item goes to, or empty where the record moves nothing.
        body: The record as canonical JSON.
        facts: What the store wants beside it.
        about: Fields of the item (`goal.` before a field of the goal) as the result found them.
        result: One line for people.
    """

    agent_id: str
    role: str
    todo_id: str
    fence: int
    kind: str
    to: str = ""
    body: str
    facts: Mapping[str, str]
    about: Mapping[str, str]
    result: str

    def send(self, lane: Lane) -> Reply:
        """Send it under the claim that the lane holds now."""
        writer, held = lane.context.writer, lane.require()
        if self.to:
            return writer.advance(held, self.to, records=[(self.kind, self.body)], **self.facts)
        writer.record(held, self.kind, self.body, **self.facts)
        return {}


def finish(
    lane: Lane,
    kind: str,
    body: str,
    *,
    to: str = "",
    facts: Mapping[str, str],
    about: Mapping[str, str],
    result: str,
) -> Finished:
    """Make a result of the claim that the lane holds, and put it on disk."""
    held = lane.require()
    finished = Finished(
        agent_id=lane.agent_id,
        role=held.role,
        todo_id=held.todo_id,
        fence=held.fence,
        kind=str(kind),
        to=str(to),
        body=body,
        facts=dict(facts),
        about=dict(about),
        result=result,
    )
    try:
        _write(_place(lane, finished), canonical(asdict(finished)))
    except OSError as error:  # a full disk must not keep it from the store
        log.warning("outbox_not_written", todo=finished.todo_id, error=str(error))
    return finished


def deliver(lane: Lane, finished: Finished) -> Reply:
    """Send a result and forget it; what came too late goes on record before the refusal goes on.

    Raises:
        RefusedError: The store refused it; after one for a claim that is over, the lane holds none.
        StoreError: It could not be sent, and waits on disk.
    """
    try:
        answer = finished.send(lane)
    except RefusedError as error:
        if error.reason in LOST:
            _settle(lane, finished, error.message)
            lane.drop()
        elif error.reason not in _ELSEWHERE:
            _set_aside(lane, finished)
        raise
    _place(lane, finished).unlink(missing_ok=True)
    return answer


def waiting(lane: Lane, item: Mapping[str, str], *kinds: str) -> Finished | None:
    """Find a result of this agent for the item it claimed, made where the item stands now."""
    todo_id = lane.require().todo_id
    for finished in _all(lane):
        if finished.todo_id == todo_id and finished.kind in kinds and _fits(lane, finished, item):
            return finished
    return None


def settle(lane: Lane) -> None:
    """Put on record, as late, every result of this agent that no step of it can deliver any more."""
    for finished in _all(lane):
        item = lane.context.reader.item(finished.todo_id)
        if not _fits(lane, finished, item):
            _settle(lane, finished, f"{finished.todo_id} has moved on")


def _settle(lane: Lane, finished: Finished, why: str) -> None:
    if _is_recorded(lane, finished):  # its answer was lost, not the result
        _place(lane, finished).unlink(missing_ok=True)
        return
    now = lane.context.reader.item(finished.todo_id)
    body = canonical(
        {
            "current_fence": int(now.get("fence") or 0),
            "what": why[:200],
            "result": finished.result[:200],
            "result_sha256": sha256_hex(finished.body),
        }
    )
    held = Held(
        goal_id=lane.context.goal_id,
        agent_id=finished.agent_id,
        incarnation=lane.incarnation,
        role=finished.role,
        todo_id=finished.todo_id,
        fence=finished.fence,
        version=int(now.get("version") or 0),
    )
    try:
        lane.context.writer.reject_stale(held, body=body)
    except RefusedError as error:  # the todo or the agent is gone; the file still says it
        log.warning("late_result_unknown", todo=finished.todo_id, reason=error.reason)
    log.warning("late_result", todo=finished.todo_id, fence=finished.fence, what=finished.result)
    _set_aside(lane, finished)


def _fits(lane: Lane, finished: Finished, item: Mapping[str, str]) -> bool:
    goal: Mapping[str, str] = {}
    if any(name.startswith("goal.") for name in finished.about):
        goal = lane.context.reader.goal()
    return all(
        (goal.get(name[5:], "") if name.startswith("goal.") else item.get(name, "")) == value
        for name, value in finished.about.items()
    )


def _is_recorded(lane: Lane, finished: Finished) -> bool:
    """Tell whether the store has this very record."""
    lane.context.follower.catch_up()
    name, content = next(iter(json.loads(finished.body).items()))
    for event in lane.context.follower.by_revision.values():
        if event.type == finished.kind and (event.todo_id or finished.todo_id) == finished.todo_id:
            record = getattr(event, name, None)
            if record is not None and record.to_json_dict() == content:
                return True
    return False


# Files -----------------------------------------------------------------------------------------


def _folder(lane: Lane) -> Path:
    return lane.context.folder / "outbox"


def _place(lane: Lane, finished: Finished) -> Path:
    return _folder(lane) / f"{finished.todo_id}-{finished.fence}.json"


def _all(lane: Lane) -> Iterator[Finished]:
    """Give what waits of this agent; a file that cannot be read is set aside."""
    folder = _folder(lane)
    if not folder.is_dir():
        return
    for place in sorted(folder.glob("*.json")):
        try:
            finished = Finished(**json.loads(place.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            log.warning("outbox_unreadable", file=place.name, error=str(error))
            _move_aside(place)
            continue
        if finished.agent_id == lane.agent_id:
            yield finished


def _set_aside(lane: Lane, finished: Finished) -> None:
    _move_aside(_place(lane, finished))


def _move_aside(place: Path) -> None:
    try:
        aside = place.parent / "refused"
        aside.mkdir(exist_ok=True)
        place.rename(aside / place.name)
    except OSError as error:
        log.warning("outbox_not_moved", file=place.name, error=str(error))


def _write(place: Path, text: str) -> None:
    """Write a file whole or not at all, whatever happens to this machine meanwhile."""
    place.parent.mkdir(parents=True, exist_ok=True)
    fresh = place.with_suffix(".new")
    with fresh.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(place)
    descriptor = os.open(place.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
