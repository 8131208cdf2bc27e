"""One model per event, discriminated by `type`; the envelope is made by the store.

An entry of a stream is a flat list of text fields: the envelope (`type`, `rev`, `seq`, `at` in
milliseconds of the store's clock, `writer`, `role`, `agent`, `todo` and so on), `body` (canonical JSON made
in Python, opaque to the store) and `digest`. `parse_entry` joins envelope and body into one event.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from contracts import records
from contracts.contract import ResearchContract
from contracts.models import Record, UtcTime
from contracts.words import Action, Role, State, Stream, Writer

# Envelope field of the store -> attribute of the event.
_TEXT = {
    "type": "type",
    "writer": "writer",
    "role": "role",
    "agent": "agent_id",
    "todo": "todo_id",
    "hyp": "hypothesis_id",
    "from": "from_state",
    "to": "to_state",
    "action": "action",
    "inc": "incarnation",
    "reason": "reason",
    "gate": "gate_id",
    "digest": "digest",
}
_INT = {
    "rev": "revision",
    "seq": "seq",
    "version": "version",
    "fence": "fence",
    "attempt": "attempt_number",
    "ref": "record_revision",
    "gaterev": "gate_revision",
}
ENVELOPE = (*_TEXT, *_INT, "at", "until", "body")


class Event(Record):
    """What every event carries.

    Attributes:
        revision: The goal's growing number, across its streams; `seq` is the stream's own, from 1.
        record_revision: The record (an event, by revision) that a transition rests on.
        lease_until: End of the lease by the store's clock.
    """

    goal_id: str
    stream: Stream
    entry_id: str
    revision: int
    seq: int
    at: UtcTime
    digest: str
    writer: Writer
    role: Role | None = None
    agent_id: str
    todo_id: str | None = None
    hypothesis_id: str | None = None
    from_state: State | None = None
    to_state: State | None = None
    version: int | None = None
    fence: int | None = None
    attempt_number: int | None = None
    record_revision: int | None = None
    action: Action | None = None
    incarnation: str | None = None
    reason: str | None = None
    gate_id: str | None = None
    gate_revision: int | None = None
    lease_until: UtcTime | None = None


class GoalCreated(Event):
    """A goal exists; `supersedes` names the goal whose contract it changes."""

    type: Literal["goal_created"]
    supersedes: str | None = None


class ContractProposed(Event):
    """The normalized contract and its hash."""

    type: Literal["contract_proposed"]
    contract: ResearchContract
    contract_hash: str


class BoundaryNoted(Event):
    """A note on the protected boundary."""

    type: Literal["boundary_noted"]
    note: str


class GateOpened(Event):
    """An item waits for a person."""

    type: Literal["gate_opened"]
    gate: records.Gate


class Signed(Event):
    """A signature; the second of two makes the transition (`from_state`, `to_state`)."""

    type: Literal["signed"]
    signature: records.Signature


class HypothesisAdded(Event):
    """A todo-backed hypothesis exists, at version 1."""

    type: Literal["hypothesis_added"]
    hypothesis: records.Hypothesis


class Assessed(Event):
    """An observation supports, weakens or falsifies a hypothesis."""

    type: Literal["assessed"]
    verdict: Literal["supports", "weakens", "falsifies"]
    refs: tuple[str, ...]
    note: str = ""


class Transitioned(Event):
    """An item moved; `record_revision` is the record the move rests on."""

    type: Literal["transitioned"]
    note: str = ""
    end_reason: str | None = None
    duplicate_of: str | None = None


class SuccessorAdded(Event):
    """The todo that an unmet target demands; `record_revision` is the event that ended the cycle."""

    type: Literal["successor_added"]
    after_todo_id: str
    target_role: Role = Role.PROPOSER
    text: str = ""


class AttemptStarted(Event):
    """An attempt runs in its worktree."""

    type: Literal["attempt_started"]
    start: records.AttemptStart


class EvidenceRecorded(Event):
    """An attempt gave a commit and its boundary facts."""

    type: Literal["evidence_recorded"]
    evidence: records.Evidence


class RetryRecorded(Event):
    """An attempt ended without evidence."""

    type: Literal["retry_recorded"]
    retry: records.RetryPacket


class BaselineRecorded(Event):
    """Iteration 0."""

    type: Literal["baseline_recorded"]
    baseline: records.Baseline


class CalibrationRecorded(Event):
    """The baseline against itself."""

    type: Literal["calibration_recorded"]
    contract_hash: str
    ratio: records.Spread


class HoldoutRecorded(Event):
    """A held-out question, asked or answered."""

    type: Literal["holdout_recorded"]
    holdout: records.Holdout


class EvaluationRecorded(Event):
    """The evaluator's own measurement and checks."""

    type: Literal["evaluation_recorded"]
    evaluation: records.Evaluation


class StrategyChanged(Event):
    """A transition rule of the strategy applied."""

    type: Literal["strategy_changed"]
    selector: str
    rule: str


class Decided(Event):
    """A terminal decision; in effect once both roles have signed."""

    type: Literal["decided"]
    decision: records.TerminalDecision


class Approved(Event):
    """A person froze exactly this contract."""

    type: Literal["approved"]
    approval: records.Approval


class AgentRegistered(Event):
    """An agent is on the roster, or off it."""

    type: Literal["agent_registered"]
    registration: records.AgentRegistration


class GateDecided(Event):
    """A person decided a gate."""

    type: Literal["gate_decided"]
    decision: records.GateDecision


class Paused(Event):
    """No new claims."""

    type: Literal["paused"]
    note: str = ""


class Resumed(Event):
    """Claims again."""

    type: Literal["resumed"]
    note: str = ""


class TakenOver(Event):
    """A person holds a lane."""

    type: Literal["taken_over"]
    lane: str


class HandedBack(Event):
    """The lane has its claim again."""

    type: Literal["handed_back"]
    lane: str


class TodoAdded(Event):
    """A person added a todo, or the goal's first ones were opened."""

    type: Literal["todo_added"]
    kind: str
    text: str = Field(default="", max_length=records.TEXT_LIMIT)
    idea: records.Idea | None = None


class Claimed(Event):
    """An agent holds an item under a fence and a lease."""

    type: Literal["claimed"]


class Selected(Event):
    """`quota should-run` selected the hypothesis for the claiming agent."""

    type: Literal["selected"]


class Released(Event):
    """A claim was given back before its step ended."""

    type: Literal["released"]


class LeaseExpired(Event):
    """A claim ended with its lease; somebody noticed."""

    type: Literal["lease_expired"]


class StaleResultRejected(Event):
    """A result came under an old fence and was refused; `result` says in a line what it was."""

    type: Literal["stale_result_rejected"]
    current_fence: int
    what: str = ""
    result: str = ""
    result_sha256: str = ""


class Spent(Event):
    """What one admitted turn cost."""

    type: Literal["spent"]
    spend: records.Spend


class Reviewed(Event):
    """A peer reviewed a terminal decision."""

    type: Literal["reviewed"]
    review: records.PeerReview


class LoopRecorded(Event):
    """An entry of a loop over numbers."""

    type: Literal["loop_recorded"]
    entry: dict[str, Any]


AnyEvent = Annotated[
    GoalCreated
    | ContractProposed
    | BoundaryNoted
    | GateOpened
    | Signed
    | HypothesisAdded
    | Assessed
    | Transitioned
    | SuccessorAdded
    | AttemptStarted
    | EvidenceRecorded
    | RetryRecorded
    | BaselineRecorded
    | CalibrationRecorded
    | HoldoutRecorded
    | EvaluationRecorded
    | StrategyChanged
    | Decided
    | Approved
    | AgentRegistered
    | GateDecided
    | Paused
    | Resumed
    | TakenOver
    | HandedBack
    | TodoAdded
    | Claimed
    | Selected
    | Released
    | LeaseExpired
    | StaleResultRejected
    | Spent
    | Reviewed
    | LoopRecorded,
    Field(discriminator="type"),
]
EVENT_ADAPTER: TypeAdapter[AnyEvent] = TypeAdapter(AnyEvent)


def _time(milliseconds: str) -> datetime:
    return datetime.fromtimestamp(int(milliseconds) / 1000, tz=UTC)


def parse_entry(goal_id: str, stream: Stream, entry_id: str, fields: Mapping[str, str]) -> AnyEvent:
    """Join the envelope and the body of one entry into its event.

    Raises:
        ValueError: A field is unknown or missing, a number is none, or the body does not fit the
            event (pydantic's ValidationError is a ValueError).
    """
    unknown = sorted(set(fields) - set(ENVELOPE))
    if unknown:
        msg = f"unknown field {unknown[0]!r}"
        raise ValueError(msg)
    values: dict[str, Any] = {"goal_id": goal_id, "stream": stream, "entry_id": entry_id}
    for name, attribute in _TEXT.items():
        if name in fields:
            values[attribute] = fields[name]
    for name, attribute in _INT.items():
        if name in fields:
            values[attribute] = int(fields[name])
    values["at"] = _time(fields["at"]) if "at" in fields else None
    if "until" in fields:
        values["lease_until"] = _time(fields["until"])
    body = json.loads(fields.get("body") or "{}")
    if not isinstance(body, dict) or set(body) & set(values):
        msg = "the body repeats an envelope field, or is no object"
        raise ValueError(msg)
    return EVENT_ADAPTER.validate_python(values | body)
