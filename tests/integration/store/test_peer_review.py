"""Peer reviews on a real store: who may, what counts, what stands; by the numbers of the peer cases."""

import json
import threading
from dataclasses import replace

import pytest
import redis

from contracts.canonical import canonical
from contracts.errors import RefusedError
from contracts.findings import Finding, finding_of
from contracts.replay_state import GoalState
from contracts.store.writer import Held, Writer
from contracts.words import EndReason, Role, State, Verdict
from projection.fold import fold
from projection.graph import document
from projection.reading import replay_goal
from projection.verify import verify
from tests.peers import add_idea, assess, register, review
from tests.scenario import OPERATOR, PLANS, Plan, Scenario, body

BEST, WORSE, FLAT = PLANS[7], PLANS[2], PLANS[5]


class CaughtError(Exception):
    """A step that a test wants to take itself."""


class Stopped(Scenario):
    """Stops before the actions that are named in `before`."""

    before: tuple[str, ...] = ()
    caught: tuple[Held, dict[str, str]] | None = None

    def step(self, agent_id: str) -> bool:
        """Take a step, or keep its claim for the test."""
        if self.caught and self.caught[0].agent_id == agent_id:
            return False
        return super().step(agent_id)

    def __getattribute__(self, name: str) -> object:
        if name.startswith("do_") and name.removeprefix("do_") in self.before:
            return self._keep
        return super().__getattribute__(name)

    def _keep(self, held: Held, facts: dict[str, str]) -> None:
        self.caught = (held, facts)


def played(client: redis.Redis, goal_id: str, *plans: Plan, **policy: object) -> Scenario:
    """Play a goal of these plans to its end, with two more on the roster."""
    goal = Scenario(client, goal_id, plans, policy=policy).open()
    register(goal, "curator-2", Role.CURATOR)
    register(goal, "curator-3", Role.CURATOR)
    return goal.play()


def stopped(client: redis.Redis, goal_id: str, before: str, *plans: Plan) -> Stopped:
    """Play a goal until somebody holds the claim for an action, and give it so."""
    goal = Stopped(client, goal_id, plans)
    goal.before = (before,)
    goal.open()
    goal.play()
    assert goal.caught, f"nobody came to {before}"
    goal.before = ()
    return goal


def state_of(goal: Scenario) -> GoalState:
    """Replay the goal."""
    return replay_goal(goal.reader).state


def found(goal: Scenario, hypothesis_id: str) -> Finding | None:
    """Give the finding on a hypothesis."""
    state = state_of(goal)
    return finding_of(state, state.items[state.hypotheses[hypothesis_id]])


def standing(goal: Scenario, hypothesis_id: str) -> tuple[str, str]:
    """Give the finding's status and its reason."""
    finding = found(goal, hypothesis_id)
    assert finding is not None
    return finding.status, finding.why


def sound(goal: Scenario) -> bool:
    """Tell whether `verify` has nothing to say."""
    checked = verify(goal.reader)
    assert checked.violations == ()
    return all(each.passed for each in checked.derived)


# Decisions ---------------------------------------------------------------------------------------


def test_peer_case_91_a_gain_on_dev_alone_is_no_promotion(
    redis_client: redis.Redis, goal_id: str
) -> None:
    goal = stopped(redis_client, goal_id, "measure_holdout", BEST)
    held, _ = goal.caught or pytest.fail("no claim")
    for attempt in (
        lambda: goal.sign(held, "promoted", "first", EndReason.DEV_VALIDATED),
        lambda: goal.writer.advance(held, "promotion_gate"),
    ):
        with pytest.raises(RefusedError) as refused:
            attempt()
        assert refused.value.reason in {"no_such_transition", "holdout"}
    assert goal.item(held)["state"] == State.SUPPORTED


def test_peer_case_93_what_improved_is_not_retired_as_contradicted(
    redis_client: redis.Redis, goal_id: str
) -> None:
    goal = stopped(redis_client, goal_id, "measure_holdout", BEST)
    held, _ = goal.caught or pytest.fail("no claim")
    goal.sign(held, "retired", "first", EndReason.CONTRADICTED)
    violations = verify(goal.reader).violations
    assert [each.what for each in violations][:1] == [
        "supported -> retired lacks a record that contradicts it"
    ]


def test_peer_case_94_a_promotion_gives_the_reason_of_a_promotion(
    redis_client: redis.Redis, goal_id: str
) -> None:
    goal = stopped(redis_client, goal_id, "sign", BEST)
    held, _ = goal.caught or pytest.fail("no claim")
    item = goal.item(held)
    decision = {
        "outcome": "promoted",
        "reason": "contradicted",
        "commit": item["commit"],
        "evidence_revision": int(item["touched"]),
        "holdout_revision": int(item["holdout_rev"]),
    }
    signature = {
        "to_state": "promoted",
        "order": "first",
        "reason": "contradicted",
        "evidence_revision": int(item["touched"]),
    }
    goal.writer.sign(
        held,
        "promoted",
        signature=body(signature=signature),
        decided=body(decision=decision),
    )
    words = [each.what for each in verify(goal.reader).violations]
    assert any("a decision with the reason holdout_validated" in each for each in words)


def test_peer_case_97_the_same_decision_sent_twice_is_one_record(
    redis_client: redis.Redis, goal_id: str
) -> None:
    goal = stopped(redis_client, goal_id, "cosign", BEST)
    held, _ = goal.caught or pytest.fail("no claim")
    signature = {
        "to_state": "promoted",
        "order": "second",
        "reason": "holdout_validated",
        "evidence_revision": int(goal.item(held)["touched"]),
    }
    values = {**held.fields(), "to": "promoted", "records": "0", "op": "twice"}
    values["signature"] = body(signature=signature)
    answers = [Writer(redis_client, goal_id).call("sign", values) for _ in range(2)]
    assert answers[0] == answers[1]
    assert len(state_of(goal).champions) == 2
    assert sound(goal)


def test_peer_case_117_no_promotion_past_a_gate_or_a_dirty_boundary(
    redis_client: redis.Redis, goal_id: str
) -> None:
    goal = stopped(redis_client, goal_id, "cosign", BEST)
    held, _ = goal.caught or pytest.fail("no claim")
    gate = body(gate={"kind": "merge", "question": "Go on?"})
    goal.writer.open_gate(operator=OPERATOR, todo_id=held.todo_id, kind="merge", body=gate)
    with pytest.raises(RefusedError) as refused:
        goal.sign(held, "promoted", "second", EndReason.HOLDOUT_VALIDATED)
    assert refused.value.reason in {"not_claimed", "blocked_by_gate"}
    dirty = replace(BEST, verdict=Verdict.BOUNDARY)
    other = played(redis_client, f"{goal_id}-dirty", dirty)
    assert len(state_of(other).champions) == 1


def test_peer_case_118_of_two_opposite_decisions_at_once_one_wins_and_nothing_is_stuck(
    redis_client: redis.Redis, goal_id: str
) -> None:
    goal = stopped(redis_client, goal_id, "sign", BEST)
    held, _ = goal.caught or pytest.fail("no claim")
    both = threading.Barrier(2)
    refused: list[str] = []

    def decide(work: object) -> None:
        both.wait()
        try:
            work() if callable(work) else None
        except RefusedError as error:
            refused.append(error.reason)

    promote = lambda: goal.do_sign(held, {})
    retire = lambda: goal.sign(held, "retired", "first", EndReason.NO_FOLLOW_UP)
    threads = [threading.Thread(target=decide, args=(work,)) for work in (promote, retire)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused == ["not_claimed"]
    goal.caught = None
    goal.play()
    assert goal.reader.item(held.todo_id)["state"] in {State.PROMOTED, State.RETIRED}


# Reviews -----------------------------------------------------------------------------------------


def test_peer_case_96_a_review_of_an_unknown_hypothesis_is_refused(
    redis_client: redis.Redis, goal_id: str
) -> None:
    goal = played(redis_client, goal_id, BEST)
    with pytest.raises(RefusedError) as refused:
        review(goal, "curator-2", "hyp_0099")
    assert refused.value.reason == "hypothesis_unknown"


def test_peer_case_97_the_same_review_again_is_reused(
    redis_client: redis.Redis, goal_id: str
) -> None:
    goal = played(redis_client, goal_id, BEST)
    first, fresh = review(goal, "curator-2", "hyp_0001")
    assert fresh
    assert review(goal, "curator-2", "hyp_0001") == (first, False)
    finding = found(goal, "hyp_0001")
    assert finding
    assert [each.revision for each in finding.reviews] == [first]
    assert sound(goal)


def test_peer_case_99_a_review_before_the_decision_is_refused(
    redis_client: redis.Redis, goal_id: str
) -> None:
    goal = stopped(redis_client, goal_id, "sign", BEST)
    register(goal, "curator-2", Role.CURATOR)
    with pytest.raises(RefusedError) as refused:
        review(goal, "curator-2", "hyp_0001")
    assert refused.value.reason == "no_decision"


@pytest.mark.parametrize(
    ("agent_id", "why"),
    [("evaluator-1", "decided it"), ("curator-1", "decided it"), ("proposer-1", "produced it")],
)
def test_peer_case_100_a_decider_who_reviews_itself_leaves_the_finding_tentative(
    redis_client: redis.Redis, goal_id: str, agent_id: str, why: str
) -> None:
    goal = played(redis_client, goal_id, BEST)
    review(goal, agent_id, "hyp_0001")
    finding = found(goal, "hyp_0001")
    assert finding
    assert [(each.independent, each.why_not) for each in finding.reviews] == [(False, why)]
    assert standing(goal, "hyp_0001") == ("tentative", "self review only")


def test_peer_case_102_a_reviewer_off_the_roster_is_refused_and_one_who_left_does_not_count(
    redis_client: redis.Redis, goal_id: str
) -> None:
    goal = played(redis_client, goal_id, BEST)
    with pytest.raises(RefusedError) as refused:
        review(goal, "stranger", "hyp_0001")
    assert refused.value.reason == "agent_unknown"
    review(goal, "curator-2", "hyp_0001")
    assert standing(goal, "hyp_0001")[0] == "confirmed"
    register(goal, "curator-2", Role.CURATOR, removed=True)
    assert standing(goal, "hyp_0001") == ("tentative", "no independent review")


def test_peer_case_103_an_independent_approval_confirms_a_promotion_and_refutes_a_refuted_one(
    redis_client: redis.Redis, goal_id: str
) -> None:
    goal = played(redis_client, goal_id, BEST, WORSE)
    assert standing(goal, "hyp_0001") == ("tentative", "no independent review")
    review(goal, "curator-2", "hyp_0001")
    review(goal, "curator-2", "hyp_0002")
    assert standing(goal, "hyp_0001")[0] == "confirmed"
    assert standing(goal, "hyp_0002")[0] == "refuted"
    assert sound(goal)


def test_peer_case_105_independent_reviews_that_differ_leave_the_finding_tentative(
    redis_client: redis.Redis, goal_id: str
) -> None:
    goal = played(redis_client, goal_id, BEST)
    review(goal, "curator-2", "hyp_0001")
    review(goal, "curator-3", "hyp_0001", "reject")
    assert standing(goal, "hyp_0001") == ("tentative", "review conflict")
    review(goal, "curator-3", "hyp_0001", "approve")  # its last word counts
    assert standing(goal, "hyp_0001")[0] == "confirmed"
    review(goal, "curator-2", "hyp_0001", "needs_more_evidence")
    assert standing(goal, "hyp_0001") == ("tentative", "review conflict")


def test_peer_case_106_new_evidence_after_the_decision_makes_the_finding_stale(
    redis_client: redis.Redis, goal_id: str
) -> None:
    goal = played(redis_client, goal_id, BEST)
    review(goal, "curator-2", "hyp_0001")
    revision, _ = assess(goal, "proposer-1", "hyp_0001", "weakens")
    assert standing(goal, "hyp_0001") == (
        "tentative",
        f"stale: new evidence at revision {revision}",
    )
    assert sound(goal)


def test_peer_case_108_an_unrelated_hypothesis_leaves_the_decision_current(
    redis_client: redis.Redis, goal_id: str
) -> None:
    goal = played(redis_client, goal_id, BEST)
    review(goal, "curator-2", "hyp_0001")
    add_idea(goal, WORSE)
    goal.play()
    assert state_of(goal).items["todo_0002"].state == State.RETIRED
    assert standing(goal, "hyp_0001")[0] == "confirmed"
    assert sound(goal)


def test_peer_case_109_a_forged_word_of_independence_changes_nothing(
    redis_client: redis.Redis, goal_id: str
) -> None:
    goal = played(redis_client, goal_id, BEST)
    review(goal, "curator-1", "hyp_0001", independent=True)
    assert standing(goal, "hyp_0001") == ("tentative", "self review only")


def test_peer_case_112_a_duplicate_is_no_finding(redis_client: redis.Redis, goal_id: str) -> None:
    class Duplicates(Scenario):
        def do_repropose_or_retire(self, held: Held, facts: dict[str, str]) -> None:
            if facts["state"] != State.HYPOTHESIS_PROPOSED:
                super().do_repropose_or_retire(held, facts)
                return
            note = body(end_reason="duplicate", duplicate_of="hyp_0001", note="the same idea")
            self.advance(held, "retired", note=note, reason="duplicate")

    goal = Duplicates(redis_client, goal_id, (WORSE, FLAT), policy={"max_attempts": 1})
    goal.open()
    assert goal.step("proposer-1")
    assert goal.step("proposer-1")
    goal.play()
    assert state_of(goal).items["todo_0002"].end_reason == EndReason.DUPLICATE
    register(goal, "curator-2", Role.CURATOR)
    review(goal, "curator-2", "hyp_0002")
    assert found(goal, "hyp_0002") is None
    assert sound(goal)


def test_a_review_names_the_decision_it_is_on(redis_client: redis.Redis, goal_id: str) -> None:
    goal = played(redis_client, goal_id, BEST)
    record = {
        "decision_revision": 3,
        "evidence_revision": 1,
        "verdict": "approve",
        "reason": "of another one",
    }
    with pytest.raises(RefusedError) as refused:
        goal.writer.review(
            agent_id="curator-2", hypothesis_id="hyp_0001", decision=3, body=body(review=record)
        )
    assert refused.value.reason == "decision_unknown"


# What is shown -----------------------------------------------------------------------------------


def test_peer_case_114_projecting_twice_appends_nothing_and_gives_the_same_bytes(
    redis_client: redis.Redis, goal_id: str
) -> None:
    goal = played(redis_client, goal_id, BEST)
    review(goal, "curator-2", "hyp_0001")
    before = goal.reader.goal()["rev"]
    first, second = (canonical(document(state_of(goal))) for _ in range(2))
    assert first == second
    assert goal.reader.goal()["rev"] == before
    nodes = {each["id"]: each for each in json.loads(first)["nodes"]}
    assert nodes[f"review:{before}"]["independent"] is True
    ended = int(goal.reader.item("todo_0001")["ended_rev"])
    assert nodes[f"decision:{ended}"]["finding"] == "confirmed"


def test_peer_case_115_a_child_has_one_edge_to_its_parent(
    redis_client: redis.Redis, goal_id: str
) -> None:
    goal = stopped(redis_client, goal_id, "repropose_or_retire", WORSE)
    held, _ = goal.caught or pytest.fail("no claim")
    child = Plan("loop in blocks", "blocks", Verdict.REGRESSION, 0.5)
    goal.by_title[child.title] = child
    signature = {
        "to_state": "retired",
        "order": "first",
        "reason": "superseded",
        "evidence_revision": int(goal.item(held)["touched"]),
    }
    record = goal.hypothesis(child, parent_hypothesis_id="hyp_0001", cites_negative=("hyp_0001",))
    goal.writer.propose(
        replace(held, version=int(goal.item(held)["version"])),
        body=body(hypothesis=record),
        text_digest="child",
        rank=1.0,
        rank_reason="",
        title=child.title,
        family=child.family,
        cursor="",
        signature=body(signature=signature),
    )
    edges = fold(state_of(goal)).edges
    assert [(e.source, e.target) for e in edges if e.kind == "refines"] == [
        ("hyp_0002", "hyp_0001")
    ]


# Assessments -------------------------------------------------------------------------------------


def test_an_assessment_voids_the_signature_that_did_not_see_it(
    redis_client: redis.Redis, goal_id: str
) -> None:
    goal = stopped(redis_client, goal_id, "cosign", BEST)
    held, _ = goal.caught or pytest.fail("no claim")
    revision, fresh = assess(goal, "proposer-1", "hyp_0001", "weakens")
    assert fresh
    assert assess(goal, "proposer-1", "hyp_0001", "weakens") == (revision, False)
    with pytest.raises(RefusedError) as refused:
        goal.sign(held, "promoted", "second", EndReason.HOLDOUT_VALIDATED)
    assert refused.value.reason == "missing_signature"
    goal.writer.release(held, "changed_since_read")
    goal.caught = None
    goal.play()  # the evaluator signs once more, then the curator
    assert goal.reader.item("todo_0001")["state"] == State.PROMOTED
    assert int(goal.reader.item("todo_0001")["ended_rev"]) > revision
    assert sound(goal)


def test_a_signature_on_evidence_that_changed_since_is_refused_as_no_recovery(
    redis_client: redis.Redis, goal_id: str
) -> None:
    goal = stopped(redis_client, goal_id, "sign", BEST)
    held, _ = goal.caught or pytest.fail("no claim")
    seen = int(goal.item(held)["touched"])
    assess(goal, "proposer-1", "hyp_0001", "supports")
    signature = {
        "to_state": "retired",
        "order": "first",
        "reason": "no_follow_up",
        "rationale": "enough",
        "evidence_revision": seen,
    }
    decision = {"outcome": "retired", "reason": "no_follow_up", "evidence_revision": seen}
    with pytest.raises(RefusedError) as refused:
        goal.writer.sign(
            held,
            "retired",
            signature=body(signature=signature),
            decided=body(decision=decision),
        )
    assert refused.value.reason == "changed_since_read"
    goal.writer.release(held, refused.value.reason)
    assert goal.item(held).get("lapses", "") in {"", "0"}
    assert sound(goal)


def test_only_a_proposer_assesses(redis_client: redis.Redis, goal_id: str) -> None:
    goal = played(redis_client, goal_id, BEST)
    for agent_id, reason in (("executor-1", "role_mismatch"), ("stranger", "agent_unknown")):
        with pytest.raises(RefusedError) as refused:
            assess(goal, agent_id, "hyp_0001", "supports")
        assert refused.value.reason == reason


def test_a_planted_second_decision_is_named_and_counts_for_nothing(
    redis_client: redis.Redis, goal_id: str
) -> None:
    """Peer case 111 in this design: an item has one decision, so a second one is no event."""
    goal = played(redis_client, goal_id, BEST)
    review(goal, "curator-2", "hyp_0001")
    register(goal, "evaluator-2", Role.EVALUATOR)
    item = goal.reader.item("todo_0001")
    writer = Writer(redis_client, goal_id)
    held = Held(goal_id, "evaluator-2", "x#1", "evaluator", "todo_0001", 1, int(item["version"]))
    signature = {
        "to_state": "retired",
        "order": "first",
        "reason": "no_follow_up",
        "evidence_revision": int(item["touched"]),
    }
    with pytest.raises(RefusedError):
        writer.sign(held, "retired", signature=body(signature=signature), decided="{}")
    assert standing(goal, "hyp_0001")[0] == "confirmed"
