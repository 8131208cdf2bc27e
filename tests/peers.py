"""What peers and a person add to a played goal: ideas, reviews, assessments, the roster."""

from contracts import records as rec
from contracts.canonical import sha256_hex
from contracts.words import Role
from tests.scenario import OPERATOR, Plan, Scenario, body


def add_idea(goal: Scenario, plan: Plan) -> str:
    """Add a plan as a person's idea; gives its todo."""
    text = f"{plan.title} makes it faster"
    idea = rec.Idea(title=plan.title, mechanism_family=plan.family, driver="files")
    goal.by_title[plan.title] = plan
    return goal.writer.add_todo(
        operator=OPERATOR,
        text_digest=sha256_hex(text),
        title=plan.title,
        body=body(kind="idea", text=text, idea=idea),
    )


def review(
    goal: Scenario, agent_id: str, hypothesis_id: str, verdict: str = "approve", **more: object
) -> tuple[int, bool]:
    """Review a decision; gives the revision, and False for a review that was there."""
    item = goal.reader.item(f"todo_{hypothesis_id.removeprefix('hyp_')}")
    decision = int(item.get("ended_rev") or 0)
    found = rec.PeerReview.model_validate(
        {
            "decision_revision": decision or 1,
            "evidence_revision": int(item.get("touched") or 0),
            "verdict": verdict,
            "reason": "as the records say",
            **more,
        }
    )
    return goal.writer.review(
        agent_id=agent_id,
        hypothesis_id=hypothesis_id,
        decision=decision,
        body=body(review=found),
    )


def assess(goal: Scenario, agent_id: str, hypothesis_id: str, verdict: str) -> tuple[int, bool]:
    """Assess a hypothesis."""
    found = body(verdict=verdict, refs=["attempt:1"], note="seen elsewhere")
    return goal.writer.assess(agent_id=agent_id, hypothesis_id=hypothesis_id, body=found)


def register(goal: Scenario, agent_id: str, *roles: Role, removed: bool = False) -> None:
    """Put an agent on the roster, or take it off."""
    record = rec.AgentRegistration(agent_id=agent_id, roles=roles, removed=removed)
    goal.writer.register(
        operator=OPERATOR,
        agent_id=agent_id,
        roles=[] if removed else [str(role) for role in roles],
        body=body(registration=record),
    )
