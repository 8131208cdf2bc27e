"""The decision as a document and as text, from replies of the store: pure, every reason."""

from typing import Any

import pytest

from contracts.canonical import canonical
from contracts.records import NextAction
from contracts.words import Reason
from quota.document import build, exit_code
from quota.extra import extra_for
from quota.text import render

BASE: dict[str, object] = {
    "should_run": "0",
    "role": "executor",
    "phase": "iterate",
    "until": "1796065450000",
    "revision": "117",
    "open_gate": "",
    "pause_note": "",
    "attempts_used": "13",
    "attempts_reserved": "0",
    "attempts_limit": "16",
    "lanes": "1",
    "lanes_limit": "2",
    "cost": "5970000",
    "cost_limit": "20000000",
    "holdouts": "5",
    "holdout_limit": "32",
    "deadline": "1796087140000",
    "now": "1796065420000",
    "blocked": [["todo_0012", "gate:gate_0002"], ["todo_0013", "claim:executor-1"]],
    "blocked_total": "2",
}
YES: dict[str, object] = {
    "should_run": "1",
    "reason": "ready",
    "todo": "todo_0014",
    "kind": "hypothesis",
    "hyp": "hyp_0014",
    "title": "Sort by norm, bound by the triangle",
    "state": "hypothesis_proposed",
    "version": "1",
    "action": "select",
    "rank": "3.00001",
    "rank_reason": "untried family; its parent hyp_0012 is the best evidence so far",
    "fence": "",
    "attempt": "",
    "lease_until": "0",
}


def document(*replies: dict[str, object], **more: Any) -> dict[str, Any]:
    """Build a document and check it against its record."""
    reply = BASE.copy()
    for each in replies:
        reply |= each
    agent = f"{reply['role'] or 'nobody'}-2"
    found = build(reply, goal_id="knn", agent_id=agent, **more)
    NextAction.model_validate_json(canonical(found))
    return found


def test_a_yes_reads_as_on_the_terminal_page() -> None:
    assert render(document(YES)) == (
        "yes  ready                                   executor-2 as executor, knn rev 117\n"
        "\n"
        "take       todo_0014  hyp_0014  Sort by norm, bound by the triangle\n"
        "action     select: hypothesis_proposed -> frontier_selected, version 1\n"
        "because    rank 1: untried family; its parent hyp_0012 is the best evidence so\n"
        "           far\n"
        "blocked    todo_0012  blocked_by gate:gate_0002\n"
        "           todo_0013  blocked_by claim:executor-1\n"
        "budget     attempts 13 of 16, parallel 1 of 2, 5.97 of 20.00 USD, 6h02m left\n"
        "next       labmates quota claim --agent-id executor-2\n"
    )


def test_a_gate_reads_as_on_the_terminal_page() -> None:
    reply: dict[str, object] = {
        "reason": "blocked_by_gate",
        "role": "curator",
        "open_gate": "gate_0002",
        "blocked": [["todo_0012", "gate:gate_0002"]],
    }
    found = document(reply, extra={"gate_opened_at": 1796065420000 - 333_000})
    assert render(found) == (
        "no   blocked_by_gate                           curator-2 as curator, knn rev 117\n"
        "\n"
        "because    what is left is held: todo_0012 by gate_0002\n"
        "waits for  gate:gate_0002, a person's decision, open for 5m33s\n"
        "ask again  when gate_0002 changes, or in 30 s\n"
        "budget     not the cause: attempts 13 of 16, 5.97 of 20.00 USD, 6h02m left\n"
        "next       a person: labmates gate show gate_0002\n"
    )
    assert exit_code(found) == 1


def test_a_spent_budget_reads_as_on_the_terminal_page() -> None:
    gap = {
        "metric": "speedup",
        "unit": "x",
        "split": "held-out",
        "best": 6.74,
        "target": 12.0,
        "missing": 5.26,
    }
    found = document({"reason": "budget_exhausted", "attempts_used": "16"}, extra={"gap": gap})
    assert render(found) == (
        "no   budget_exhausted                        executor-2 as executor, knn rev 117\n"
        "\n"
        "because    attempts 16 of 16 are used\n"
        "gap        best held-out 6.74x of 12.00x; 5.26x are missing\n"
        "waits for  nothing; waiting will not help\n"
        "then       the goal escalates with this gap in its report, once nothing runs\n"
        "next       labmates report\n"
    )


def test_a_reserved_attempt_may_come_back_and_is_waited_for() -> None:
    reply: dict[str, object] = {"reason": "budget_exhausted", "attempts_used": "15"}
    found = document(reply, {"attempts_reserved": "1"})
    assert found["wait"]["on"] == ["budget:attempts"]
    assert document(reply)["wait"] is None
    assert document(reply, {"attempts_used": "16", "attempts_reserved": "1"})["wait"] is None


def test_a_claim_that_goes_on_says_for_how_long() -> None:
    reply: dict[str, object] = {
        "reason": "resume_claim",
        "action": "resume",
        "claimed_action": "select",
        "state": "attempt_running",
        "fence": "37",
        "attempt": "13",
        "lease_until": "1796065441000",
    }
    found = document(YES, reply)
    assert found["selected"]["lease_until"] == "2026-11-30T19:04:01.000Z"
    text = render(found)
    assert "\naction     resume: attempt_running, fence 37, lease for another 21 s\n" in text
    assert "\nbecause    the claim is yours already (for select, attempt 13)\n" in text
    assert found["selected"]["rank"] is None


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_text_a_next_command_and_an_exit_code(reason: Reason) -> None:
    yes = reason in {Reason.READY, Reason.RESUME_CLAIM}
    found = document(YES if yes else {}, {"reason": reason.value})
    text = render(found)
    assert text.startswith(f"{'yes' if yes else 'no':<5}{reason.value} ")
    because = next(row for row in text.splitlines() if row.startswith("because"))
    assert because != f"because    {reason.value}"
    assert found["next"][0] == "labmates"
    assert "\nnext       " in text
    never = reason in {Reason.AGENT_UNKNOWN, Reason.ROLE_MISMATCH}
    assert exit_code(found) == (0 if yes else 3 if never else 1)
    assert max(map(len, text.splitlines())) <= 80


def test_blocked_by_and_wait_are_kind_and_id_of_one_list() -> None:
    kinds = {"claim", "gate", "budget", "lane", "base", "goal"}
    for reason in Reason:
        found = document({"reason": reason.value})
        named = [each["blocked_by"] for each in found["blocked"]]
        named += found["wait"]["on"] if found["wait"] else []
        for each in named:
            kind, _, name = each.partition(":")
            assert kind in kinds
            assert name


def test_at_most_ten_blocked_items_are_named_and_all_are_counted() -> None:
    many = [[f"todo_{n:04d}", "claim:executor-1"] for n in range(12)]
    found = document(YES, {"blocked": many, "blocked_total": "40"})
    assert len(found["blocked"]) == 10
    assert "\n           and 30 more\n" in render(found)


def test_no_limit_is_null_and_not_zero() -> None:
    found = document({"cost_limit": "0", "holdout_limit": "0", "deadline": "0"}, {"reason": "x"})
    assert found["budget"]["cost_usd"] == {"used": 5.97, "limit": None}
    assert found["budget"]["holdout"] == {"used": 5, "limit": None}
    assert (found["budget"]["deadline"], found["budget"]["seconds_left"]) == (None, None)


def test_colour_adds_nothing_but_colour() -> None:
    for found in (document(YES), document({"reason": "goal_paused"})):
        coloured = render(found, colour=True)
        for code in ("0", "1", "2", "1;32", "1;33"):
            coloured = coloured.replace(f"\x1b[{code}m", "")
        assert coloured == render(found)
    assert render(document(YES), colour=True).startswith("\x1b[1;32myes\x1b[0m  ready")


def entry(kind: str, body: dict[str, Any], **fields: str) -> list[Any]:
    """Give a stream's entry as the wire does."""
    flat = [
        part for pair in {"type": kind, **fields, "body": canonical(body)}.items() for part in pair
    ]
    return ["1-1", flat]


@pytest.mark.parametrize(
    ("direction", "best", "missing"),
    [("maximize", 6.5, 5.5), ("maximize", 13.0, 0.0), ("minimize", 13.0, 1.0)],
)
def test_the_gap_is_that_of_the_champion_to_the_target(
    direction: str, best: float, missing: float
) -> None:
    evaluation = {"metric": "m", "unit": "x", "holdout": "h", "target": 12.0}
    contract = {"contract": {"evaluation": evaluation | {"direction": direction}}}
    other = entry("decided", {"decision": {"value": 99.0}}, hyp="hyp_0009")
    ours = entry("decided", {"decision": {"value": best}}, hyp="hyp_0008")

    def ask(*words: object) -> object:
        if words[0] == "XRANGE":
            return [entry("goal_created", {}), entry("contract_proposed", contract)]
        if words[0] == "HGET":
            return "hyp_0008"
        return [other, ours]

    gap = extra_for(ask, "knn", {"reason": "budget_exhausted"})["gap"]
    assert gap == {
        "metric": "m",
        "unit": "x",
        "split": "held-out",
        "best": best,
        "target": 12.0,
        "missing": missing,
    }
