"""The shortest runs that end badly without a ruling of the design, each played on the real store.

Every test plays its trace on the model and the store at once and compares the whole of both; what
the ruling asks for is asserted on top. Names are those of the rulings (`design/state-machine.md`).
"""

import pytest

from tests.property.play import BAD, GOOD, NO_SCORE, Make, Play
from tests.property.test_model_against_store import busy, settle
from tests.property.work import Choice, sign, step


def test_contract_stays_proposing_goes_on_while_the_target_is_unmet(make: Make) -> None:
    play = make(stop="target")
    play.evidence(BAD)
    play.goes("evaluator-1", "evaluate", BAD, BAD)
    play.goes("proposer-1", "repropose_or_retire")
    play.goes("evaluator-1", "cosign")
    play.take("proposer-1", "propose")


def test_lapse_origin_a_retry_is_not_forgotten(make: Make) -> None:
    play = make()
    todo = play.goes("executor-1", "select", GOOD, NO_SCORE)
    play.take("executor-1", "select", todo)
    play.lapse(todo)
    assert play.state(todo) == "needs_retry"


def test_reserve_one_attempt_is_not_taken_twice(make: Make) -> None:
    play = make(2, max_attempts=1)
    play.take("executor-1", "select")
    assert play.reason("executor-2") == "budget_exhausted"


def test_reserve_what_is_given_back_may_be_taken_again(make: Make) -> None:
    play = make(2, max_attempts=1)
    play.take("executor-1", "select")
    play.release("executor-1", "stopped")
    play.take("executor-2", "select")


def test_lanes_are_counted_by_reservation_not_by_the_live_lease(make: Make) -> None:
    play = make(2, max_parallel=1)
    play.goes("executor-1", "select")
    assert play.reason("executor-2") == "parallel_limit"
    play.work("executor-1")
    assert play.reason("executor-2") == "parallel_limit", "held until it is evaluated"
    play.goes("evaluator-1", "evaluate", GOOD, GOOD)
    play.take("executor-2", "select")


def test_confirm_reserves_a_lane_and_an_attempt(make: Make) -> None:
    play = make(2, max_parallel=1)
    noisy = Choice(noise=True)
    play.goes("executor-1", "select", noisy, noisy)
    play.goes("evaluator-1", "evaluate", noisy, noisy)
    play.take("executor-1", "confirm")
    assert play.model.reserved() == 1
    assert play.reason("executor-2") == "parallel_limit"


def test_sign_releases_the_signed_item_is_the_cosigners(make: Make) -> None:
    play = make()
    flat = Choice(verdict="flat")
    todo = play.evidence(flat)
    play.goes("evaluator-1", "evaluate", flat, flat)
    play.take("proposer-1", "cosign", todo)


def test_touch_a_signature_does_not_void_itself(make: Make) -> None:
    play = make()
    flat = Choice(verdict="flat")
    todo = play.evidence(flat)
    play.goes("evaluator-1", "evaluate", flat, flat)
    play.goes("proposer-1", "cosign")
    assert play.state(todo) == "retired"


def two_at_the_gate(make: Make) -> Play:
    """Bring two items to the gate, sign both, and promote the first."""
    play = make(2)
    play.evidence()
    play.evidence(agent="executor-2")
    for action, steps in (("evaluate", 2), ("measure_holdout", 2), ("sign", 1)):
        for agent in ("evaluator-1", "evaluator-2"):
            play.take(agent, action)
        for agent in ("evaluator-1", "evaluator-2"):
            for _ in range(steps):
                play.work(agent)
    play.goes("curator-1", "cosign")
    return play


def test_touch_champ_the_champions_move_voids_a_promotions_signature(make: Make) -> None:
    play = two_at_the_gate(make)
    assert play.reason("curator-1") == "frontier_empty"
    (second,) = [item for item in play.model.hypotheses() if item.state == "promotion_gate"]
    assert play.reader.ready("sign") == [(second.todo, second.rank)]


def test_sendback_two_promotions_never_stand_on_one_base(make: Make) -> None:
    play = two_at_the_gate(make)
    todo = play.goes("evaluator-1", "sign")
    assert play.state(todo) == "supported"
    play.take("executor-1", "confirm", todo)


def test_gate_end_a_gated_item_holds_no_lane_once_it_is_delivered(make: Make) -> None:
    play = make(2, max_parallel=1)
    todo = play.goes("executor-1", "select")
    play.gate(todo, "merge")
    play.compare()
    play.work("executor-1")
    assert play.model.lanes() == 0
    play.take("executor-1", "select")


def test_gate_lapse_a_crash_under_a_gate_frees_the_lane(make: Make) -> None:
    play = make(2, max_parallel=1)
    todo = play.goes("executor-1", "select")
    play.gate(todo, "merge")
    play.lapse(todo)
    assert play.state(todo) == "needs_retry"
    play.take("executor-2", "select")


def test_gate_drop_a_claim_that_cannot_be_delivered_ends(make: Make) -> None:
    play = make()
    todo = play.evidence()
    play.take("evaluator-1", "evaluate", todo)
    play.gate(todo, "merge")
    play.compare()
    assert play.reason("evaluator-1") == "blocked_by_gate"
    play.work("evaluator-1", done=False)


def test_noatt_without_attempts_a_retry_is_the_proposers_to_settle(make: Make) -> None:
    play = make(2, max_attempts=1)
    play.goes("executor-1", "select", GOOD, NO_SCORE)
    play.take("proposer-1", "repropose_or_retire")
    settle(play)


def test_exhaust_on_used_reserved_attempts_may_come_back(make: Make) -> None:
    play = make(2, max_attempts=1)
    play.take("executor-1", "select")
    play.take("proposer-1", "propose")
    play.work("proposer-1", Choice(closes=True))
    assert play.reason("proposer-1") == "frontier_empty"
    play.work("executor-1")
    play.take("proposer-1", "repropose_or_retire")


def test_drain_untried_items_of_a_done_goal_are_settled(make: Make) -> None:
    play = make(2, stop="target")
    big = Choice(big=True)
    play.goes("executor-1", "select", big, big)
    play.goes("evaluator-1", "evaluate", big, big)
    play.goes("evaluator-1", "measure_holdout", big, big)
    play.goes("evaluator-1", "sign")
    play.goes("curator-1", "cosign")
    play.goes("proposer-1", "repropose_or_retire")
    assert play.reason("executor-1") == "goal_done"


def test_wait_until_a_no_names_the_end_of_the_next_lease(make: Make) -> None:
    play = make(max_parallel=1)
    todo = play.goes("executor-1", "select")
    said = play.reader.should_run("executor-2")
    assert (said["should_run"], said["until"]) == ("0", str(play.reader.leases()[todo]))


def test_hoq_before_a_held_out_question_is_counted_before_it_is_asked(make: Make) -> None:
    play = make(holdouts=1)
    todo = play.supported()
    play.take("evaluator-1", "measure_holdout", todo)
    play.work("evaluator-1")
    play.lapse(todo)
    play.take("evaluator-2", "measure_holdout", todo)
    play.work("evaluator-2", Choice(fails=True), done=False)


def test_first_signer_supported_without_a_question_left_is_the_evaluators(make: Make) -> None:
    play = make(holdouts=1)
    todo = play.supported()
    play.take("evaluator-1", "measure_holdout", todo)
    play.work("evaluator-1")
    play.release("evaluator-1", "stopped")
    play.goes("evaluator-1", "measure_holdout")
    play.goes("proposer-1", "cosign")
    assert play.state(todo) == "retired"


def test_quarantine_dying_processes_count_as_recoveries(make: Make) -> None:
    play = make()
    play.take("executor-1", "select")
    for _ in range(2):
        play.crash("executor-1")
        play.take("executor-1", "select")
    play.crash("executor-1")
    assert not play.claim("executor-1")
    play.compare()
    assert play.reason("executor-1") == "blocked_by_gate"


def test_decline_a_cosigner_who_disagrees_three_times_asks_a_person(make: Make) -> None:
    play = make()
    todo = play.at_gate()
    for _ in range(3):
        play.goes("evaluator-1", "sign")
        play.goes("curator-1", "cosign", Choice(disagrees=True))
    (gate,) = play.reader.open_gates()
    assert play.reader.gate(gate)["kind"] == "disagreement"
    play.decide(gate, accepted=False)
    play.goes("evaluator-1", "sign")
    play.goes("proposer-1", "cosign")
    assert play.state(todo) == "retired"


def test_pg_atomic_the_owner_gate_opens_in_the_same_call(make: Make) -> None:
    play = make(owner_gate=True)
    todo = play.at_gate()
    assert play.reader.item(todo)["gate"] == "gate_0001"
    assert play.reason("evaluator-1") == "blocked_by_gate"
    play.decide("gate_0001", accepted=True)
    play.goes("evaluator-1", "sign")


def test_doom_a_refused_item_is_not_started_but_settled(make: Make) -> None:
    play = make()
    play.gate("todo_0001", "merge")
    play.decide("gate_0001", accepted=False)
    play.compare()
    assert play.reason("executor-1") == "frontier_empty"
    play.goes("proposer-1", "repropose_or_retire")
    assert play.state("todo_0001") == "retired"


def test_doom_no_decline_the_cosigner_of_a_refusal_may_not_decline(make: Make) -> None:
    play = make()
    flat = Choice(verdict="flat")
    todo = play.evidence(flat)
    play.gate(todo, "merge")
    play.decide("gate_0001", accepted=False)
    play.goes("evaluator-1", "evaluate", flat, flat)
    play.take("proposer-1", "cosign", todo)
    hand = play.hands["proposer-1"]
    assert (
        play.both(
            "declines",
            lambda: play.model.decline(hand.model),
            lambda: play.writer.decline(hand.real, signature="{}"),
        )
        is None
    )


def test_decide_touches_a_refused_gate_voids_the_signature(make: Make) -> None:
    play = make()
    todo = play.at_gate()
    play.goes("evaluator-1", "sign")
    play.gate(todo, "merge")
    play.compare()
    play.decide("gate_0001", accepted=False)
    play.compare()
    assert play.reason("curator-1") == "frontier_empty"
    play.take("evaluator-1", "sign", todo)
    assert not sign(play, play.hands["evaluator-1"], play.model.items[todo], "promoted")


@pytest.mark.parametrize("why", ["paused", "base moved", "closed"])
def test_start_checks_again_what_the_selection_checked(make: Make, why: str) -> None:
    play = make(2, stop="target")
    big = Choice(big=why == "closed")
    play.goes("executor-1", "select", big, big)
    play.goes("evaluator-1", "evaluate", big, big)
    play.goes("evaluator-1", "measure_holdout", big, big)
    play.goes("evaluator-1", "sign")
    play.take("executor-2", "select")
    if why == "paused":
        play.pause(value=True)
    else:
        play.goes("curator-1", "cosign")
    play.work("executor-2", done=False)
    assert (
        play.log[-1]
        == {
            "paused": "  refused: not_paused",
            "base moved": "  refused: base_current",
            "closed": "  refused: not_closed",
        }[why]
    )
    play.release("executor-2", "stale_base")
    play.compare()
    assert play.model.used == 1


def test_release_run_a_running_attempt_is_never_just_let_go(make: Make) -> None:
    play = make()
    todo = play.goes("executor-1", "select")
    play.release("executor-1", "stopped")
    play.compare()
    assert play.state(todo) == "attempt_running"
    play.work("executor-1", NO_SCORE)


def test_esc_late_the_phase_is_no_end_while_something_is_live(make: Make) -> None:
    play = make(max_attempts=1, stop="target")
    big = Choice(big=True)
    todo = play.goes("executor-1", "select", big, big)
    for agent, action, choices in (
        ("evaluator-1", "evaluate", (big, big)),
        ("evaluator-1", "measure_holdout", (big, big)),
        ("evaluator-1", "sign", (big,)),
    ):
        assert play.reader.should_run("executor-1")["phase"] == "iterate"
        play.goes(agent, action, *choices)
    play.goes("curator-1", "cosign")
    assert play.state(todo) == "promoted"
    assert play.reader.should_run("executor-1")["phase"] == "done"


def test_retry_count_attempts_without_a_score_are_counted_whoever_ended_them(make: Make) -> None:
    play = make(retries=1)
    unscored = Choice(verdict="unscored")
    for _ in range(2):
        play.evidence(unscored)
        play.goes("evaluator-1", "evaluate", unscored, unscored)
    assert play.reason("executor-1") == "frontier_empty"
    play.take("proposer-1", "repropose_or_retire")


def test_incarn_a_second_live_process_of_an_agent_gets_nothing(make: Make) -> None:
    play = make()
    play.enlist("executor-1", "executor-1#1", "")
    play.take("executor-1", "select")
    assert not play.claim("executor-1", other="executor-1#2")
    assert not play.enlist("executor-1", "executor-1#2", "")
    play.crash("executor-1")
    play.take("executor-1", "select")
    play.work("executor-1")


def test_two_roles_one_agent_is_served_all_its_roles(make: Make) -> None:
    play = make()
    for _ in range(60):
        if not busy(play):
            break
        if hand := play.hands.get("all-1"):
            step(play, hand, Choice(closes=True))
        else:
            play.claim("all-1")
    play.compare()
    assert play.model.phase() in {"done", "escalate"}
    assert play.model.champion == 2


def test_late_ok_under_the_newest_fence_a_late_write_is_taken_under_an_older_one_not(
    make: Make,
) -> None:
    play = make()
    todo = play.goes("executor-1", "select")
    play.expire(todo)
    play.work("executor-1")
    assert play.state(todo) == "evidence_recorded"
    play.take("evaluator-1", "evaluate", todo)
    play.expire(todo)
    play.take("evaluator-2", "evaluate", todo)
    play.work("evaluator-1", done=False)
    play.work("evaluator-2")


def test_succ_atomic_the_step_that_leaves_nothing_to_do_adds_the_successor(make: Make) -> None:
    play = make()
    play.goes("proposer-1", "propose", Choice(closes=True))
    todo = play.evidence(BAD)
    play.goes("evaluator-1", "evaluate", BAD, BAD)
    play.goes("proposer-1", "repropose_or_retire")
    play.goes("evaluator-1", "cosign")
    assert (play.state(todo), play.model.phase()) == ("retired", "iterate")
    play.take("proposer-1", "propose", "todo_successor_0001")
    play.work("proposer-1")
    play.take("proposer-1", "propose", "todo_propose")


def test_propose_bound_a_successors_no_is_the_last_word(make: Make) -> None:
    play = make(0)
    for _ in range(2):
        play.goes("proposer-1", "propose", Choice(closes=True))
    assert play.reason("proposer-1") == "goal_escalated"


def test_an_improvement_that_fails_the_guard_is_reworked_twice_and_no_more(make: Make) -> None:
    play = make(retries=0)
    guard = Choice(verdict="guard")
    for _ in range(2):
        todo = play.evidence(guard)
        play.goes("evaluator-1", "evaluate", guard, guard)
        assert play.state(todo) == "needs_retry"
    todo = play.evidence(guard)
    play.goes("evaluator-1", "evaluate", guard)
    play.work("evaluator-1", Choice(verdict="guard", fails=True), done=False)
    assert play.log[-1] == "  refused: reworks_left"
    play.work("evaluator-1", guard)
    assert play.state(todo) == "contradicted"


def test_a_second_try_that_changes_nothing_is_the_last(make: Make) -> None:
    play = make(retries=5)
    unchanged = Choice(fails=True, noise=True)
    for _ in range(2):
        play.goes("executor-1", "select", GOOD, unchanged)
    play.take("proposer-1", "repropose_or_retire")


def test_an_evaluators_failing_machine_is_counted_apart_and_then_asks_a_person(make: Make) -> None:
    play = make()
    todo = play.evidence()
    for number in range(1, 4):
        assert play.reader.open_gates() == []
        play.take("evaluator-1", "evaluate", todo)
        play.release("evaluator-1", "evaluation_failed")
        play.compare()
        item = play.reader.item(todo)
        assert (item["state"], item["lapses"]) == ("evidence_recorded", str(number))
        assert item.get("retries", "") in {"", "0"}
    (gate,) = play.reader.open_gates()
    assert play.reader.gate(gate)["kind"] == "poison"
    assert play.reason("evaluator-1") == "blocked_by_gate"
    play.decide(gate, accepted=True)
    play.compare()
    play.goes("evaluator-1", "evaluate", GOOD, GOOD)
    assert play.state(todo) == "supported"
