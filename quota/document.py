"""`agent_lane_next_action_v0`: the store's flat decision as the document that everyone reads.

Pure and cheap to import; `quota.text` renders the document for people, so the two cannot drift.
`blocked_by` and `wait.on` are `kind:id` of one list: claim, gate, budget, lane, base, goal.
"""

from __future__ import annotations

from time import gmtime, strftime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

SCHEMA = "agent_lane_next_action_v0"
POLL_AFTER_S = 30
"""Seconds after which a waiter asks again at the latest."""

BLOCKED_LIMIT = 10
NEVER = ("agent_unknown", "role_mismatch")
"""The answers that exit 3: this agent may not ask that."""


def build(
    reply: Mapping[str, object],
    *,
    goal_id: str,
    agent_id: str,
    extra: Mapping[str, object] | None = None,
    named_goal: bool = False,
    claimed: bool = False,
) -> dict[str, Any]:
    """Build the document.

    Args:
        reply: The paired reply of `lm_should_run_v1` or `lm_claim_v1`.
        goal_id: The goal.
        agent_id: Who asked.
        extra: What `quota.extra` read beside it: `gap`, `gate_opened_at`.
        named_goal: The goal was named on the command line, so `next` must name it too.
        claimed: The reply is that of a claim.
    """
    extra = extra or {}
    reason = str(reply.get("reason", ""))
    should_run = reply.get("should_run") == "1"
    role = str(reply.get("role") or "") or None
    selected = _selected(reply) if should_run else None
    blocked = [
        {"todo_id": str(pair[0]), "blocked_by": str(pair[1])}
        for pair in _list(reply.get("blocked"))
        if isinstance(pair, list) and len(pair) == 2
    ]
    budget = _budget(reply)
    goal = ["--goal-id", goal_id] if named_goal else []
    return {
        "schema_version": SCHEMA,
        "goal_id": goal_id,
        "agent_id": agent_id,
        "role": role,
        "should_run": should_run,
        "reason": reason,
        "selected": selected,
        "blocked": blocked[:BLOCKED_LIMIT],
        "blocked_total": _int(reply, "blocked_total"),
        "budget": budget,
        "wait": None if should_run else _wait(reply, goal_id, agent_id, blocked, extra),
        "next": [
            "labmates",
            *_next(reply, reason, agent_id, role, claimed=claimed),
            *goal,
        ],
        "gap": extra.get("gap"),
        "phase": _phase(reply),
        "revision": _int(reply, "revision"),
    }


def exit_code(document: Mapping[str, Any]) -> int:
    """Give 0 for yes, 3 for an agent that may not ask, 1 for every other no."""
    if document["should_run"]:
        return 0
    return 3 if document["reason"] in NEVER else 1


def iso(milliseconds: int) -> str | None:
    """Give a time of the store's clock as ISO text in UTC; None for 0."""
    if milliseconds <= 0:
        return None
    seconds, rest = divmod(milliseconds, 1000)
    return strftime("%Y-%m-%dT%H:%M:%S", gmtime(seconds)) + f".{rest:03d}Z"


def _selected(reply: Mapping[str, object]) -> dict[str, Any]:
    action = str(reply.get("action") or "")
    found: dict[str, Any] = {
        "todo_id": str(reply.get("todo") or ""),
        "hypothesis_id": str(reply.get("hyp") or "") or None,
        "kind": str(reply.get("kind") or ""),
        "title": str(reply.get("title") or "") or None,
        "state": str(reply.get("state") or ""),
        "version": _int(reply, "version"),
        "allowed_action": action,
        # The decision always takes the first of the queue; its score says how it got there.
        "rank": None if action == "resume" else 1,
        "rank_score": _float(reply, "rank"),
        "rank_reason": str(reply.get("rank_reason") or ""),
        "attempt": _int(reply, "attempt") or None,
    }
    lease = _int(reply, "lease_until")
    if lease:
        found["claimed_action"] = str(reply.get("claimed_action") or "")
        found["fence"] = _int(reply, "fence")
        found["lease_until"] = iso(lease)
        found["lease_seconds_left"] = max(0, (lease - _int(reply, "now")) // 1000)
    return found


def _budget(reply: Mapping[str, object]) -> dict[str, Any]:
    deadline = _int(reply, "deadline")
    left = max(0, (deadline - _int(reply, "now")) // 1000) if deadline else None
    return {
        "attempts": {
            "used": _int(reply, "attempts_used"),
            "reserved": _int(reply, "attempts_reserved"),
            "limit": _int(reply, "attempts_limit"),
        },
        "parallel": {"used": _int(reply, "lanes"), "limit": _int(reply, "lanes_limit")},
        "cost_usd": {
            "used": _int(reply, "cost") / 1_000_000,
            "limit": _int(reply, "cost_limit") / 1_000_000 or None,
        },
        "holdout": {
            "used": _int(reply, "holdouts"),
            "limit": _int(reply, "holdout_limit") or None,
        },
        "deadline": iso(deadline),
        "seconds_left": left,
    }


def _wait(
    reply: Mapping[str, object],
    goal_id: str,
    agent_id: str,
    blocked: list[dict[str, str]],
    extra: Mapping[str, object],
) -> dict[str, Any] | None:
    reason = str(reply.get("reason", ""))
    claims = list(
        dict.fromkeys(b["blocked_by"] for b in blocked if b["blocked_by"][:6] == "claim:")
    )
    gates = list(dict.fromkeys(b["blocked_by"] for b in blocked if b["blocked_by"][:5] == "gate:"))
    if not gates and reply.get("open_gate"):
        gates = [f"gate:{reply['open_gate']}"]
    used, limit = _int(reply, "attempts_used"), _int(reply, "attempts_limit")
    on = {
        "blocked_by_gate": gates,
        "parallel_limit": ["budget:parallel"],
        "frontier_empty": claims or [f"goal:{goal_id}"],
        "baseline_missing": ["base:baseline"],
        "goal_paused": [f"goal:{goal_id}"],
        "contract_unapproved": [f"goal:{goal_id}"],
        "lane_taken_over": [f"lane:{agent_id}"],
        "cooling_down": ["base:calm"],
    }.get(reason)
    # What is reserved may come back; what is spent does not.
    if reason == "budget_exhausted" and used < limit and _int(reply, "attempts_reserved"):
        on = ["budget:attempts"]
    if on is None:
        return None
    found: dict[str, Any] = {
        "on": on,
        "until": iso(_int(reply, "until")),
        "poll_after_s": POLL_AFTER_S,
    }
    if reason == "goal_paused":
        found["note"] = str(reply.get("pause_note") or "")
    opened = extra.get("gate_opened_at")
    if reason == "blocked_by_gate" and isinstance(opened, int) and opened:
        found["open_for_s"] = max(0, (_int(reply, "now") - opened) // 1000)
    return found


def _next(
    reply: Mapping[str, object], reason: str, agent_id: str, role: str | None, *, claimed: bool
) -> list[str]:
    if reason == "resume_claim" or (claimed and reason == "ready"):
        return ["worker", *(["--role", role] if role else []), "--agent-id", agent_id]
    if reason == "ready":
        return ["quota", "claim", "--agent-id", agent_id]
    if reason == "blocked_by_gate" and reply.get("open_gate"):
        return ["gate", "show", str(reply["open_gate"])]
    fixed = {
        "budget_exhausted": ["report"],
        "goal_done": ["report"],
        "goal_escalated": ["report"],
        "goal_paused": ["resume"],
        "contract_unapproved": ["plan"],
        "agent_unknown": ["agent", "list"],
        "role_mismatch": ["agent", "list"],
    }.get(reason)
    return fixed or ["quota", "should-run", "--agent-id", agent_id, "--wait", "60"]


def _phase(reply: Mapping[str, object]) -> str | None:
    found = str(reply.get("phase") or "")
    return found if found in {"baseline", "iterate", "done", "escalate"} else None


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _int(reply: Mapping[str, object], name: str) -> int:
    value = reply.get(name)
    try:
        return int(str(value)) if value else 0
    except ValueError:
        return 0


def _float(reply: Mapping[str, object], name: str) -> float | None:
    try:
        return float(str(reply.get(name)))
    except ValueError:
        return None
