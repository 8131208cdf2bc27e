"""The role map: what each role is for, may write, and must not do."""

from typing import NamedTuple

from contracts.words import CAPABILITY_TOKENS, Role


class RoleCard(NamedTuple):
    """One row of the map; `title` is what people call the role."""

    role: Role
    title: str
    primary_job: str
    may_write: str
    must_not: str

    @property
    def capability(self) -> str:
        """Give the role's capability token."""
        return CAPABILITY_TOKENS[self.role]


ROLE_MAP: tuple[RoleCard, ...] = (
    RoleCard(
        Role.CURATOR,
        "research curator",
        "keep objective, editable and protected scope, metric, stop policy and gates explicit",
        "the contract, notes on the protected boundary, owner gates, requests for projections",
        "pick winners, run experiments, publish unsupported claims",
    ),
    RoleCard(
        Role.PROPOSER,
        "hypothesis proposer",
        "turn ideas into todo-backed hypotheses with parents and mechanism families; bounded"
        " decisions to retire or succeed them",
        "hypotheses, successor todos, grounding refs, no-follow-up rationales",
        "claim novelty from the source it ideated with, delete negative evidence",
    ),
    RoleCard(
        Role.EXECUTOR,
        "research executor",
        "try selected hypotheses in isolated worktrees and keep the evidence of every attempt",
        "branch refs, evidence events, retry packets",
        "edit the protected scope, hide failures, promote results",
    ),
    RoleCard(
        Role.EVALUATOR,
        "evaluator and promoter",
        "classify evidence as supported, contradicted, in need of a retry, ready to promote or to"
        " retire",
        "evaluations, candidates for promotion and retirement, gates, evidence for projections",
        "treat a gain on dev as promoted, override missing held-out evidence",
    ),
)

INVARIANTS: tuple[str, ...] = (
    "No role owns the whole graph or can rewrite what others found.",
    "quota should-run selects only from the asking agent's own frontier.",
    "Every hypothesis that is tried is backed by a todo and by a claim.",
    "A promotion is evidence plus gate policy, not a persuasive summary.",
    "Failed, contradicted and exhausted attempts stay visible as negative evidence.",
)
