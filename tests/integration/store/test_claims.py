"""Competing processes: every item is claimed once, in order of rank, by nobody twice."""

import json
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import redis

from contracts.errors import RefusedError
from contracts.records import Gate
from contracts.store import keys
from contracts.store.connect import connect
from contracts.store.reader import Reader
from contracts.store.writer import Held, Writer
from contracts.words import Stream
from tests.goals import BASE, HASH, NUMBERS, OPERATOR, add_items, make_goal, take, try_take
from tests.scenario import Scenario
from tests.support import rounds, wait_until

CLAIMER = """
import json, sys
from dataclasses import replace
from contracts.store.connect import connect
from contracts.store.writer import Writer
from tests.goals import BASE, try_take
url, goal, agent = sys.argv[1:]
writer = Writer(connect(url), goal, url=url)
base = writer.client.hget("{" + goal + "}:goal", "champion_rev")
print("ready", flush=True)
sys.stdin.readline()
claimed = []
while (held := try_take(writer, agent)) is not None:
    claimed.append(held.todo_id)
    answer = writer.advance(held, "attempt_running", records=[("attempt_started", "{}")],
                            base_rev=base, base_commit=BASE)
    held = replace(held, version=int(answer["version"]))
    writer.advance(held, "needs_retry", records=[("retry_recorded", "{}")])
print(json.dumps(claimed), flush=True)
"""


def test_eight_processes_claim_every_item_once_in_order_of_rank(
    any_client: redis.Redis, any_server_url: str, goal_id: str
) -> None:
    count = rounds(1000)
    seed = random.randrange(2**32)
    print(f"seed {seed}, {count} items")
    ranks = list(range(count))
    random.Random(seed).shuffle(ranks)
    agents = [(f"executor-{n}", "executor") for n in range(8)]
    writer = make_goal(any_client, goal_id, agents=[*agents, ("proposer-1", "proposer")])
    todos = add_items(writer, "proposer-1", ranks)
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", CLAIMER, any_server_url, goal_id, agent],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for agent, _ in agents
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    claimed: list[str] = []
    for worker in workers:
        out, _ = worker.communicate(timeout=100)
        assert worker.returncode == 0
        claimed += json.loads(out)
    assert sorted(claimed) == sorted(todos)
    order = [
        fields["todo"]
        for _, fields in Reader(any_client, goal_id).entries(Stream.EXECUTOR)
        if fields["type"] == "claimed"
    ]
    rank_of = dict(zip(todos, ranks, strict=True))
    assert [rank_of[todo] for todo in order] == sorted(ranks)


@pytest.fixture
def goal(any_client: redis.Redis, goal_id: str) -> Writer:
    agents = [("executor-1", "executor"), ("executor-2", "executor"), ("proposer-1", "proposer")]
    return make_goal(any_client, goal_id, agents=agents, lease_ms="300", retries="2")


def test_reading_the_decision_writes_nothing_and_says_what_claim_will_do(goal: Writer) -> None:
    add_items(goal, "proposer-1", [2, 1])
    reader = Reader(goal.client, goal.goal_id)
    before = {key: goal.client.dump(key) for key in goal.client.keys(f"{{{goal.goal_id}}}*")}
    said = reader.should_run("executor-1")
    after = {key: goal.client.dump(key) for key in goal.client.keys(f"{{{goal.goal_id}}}*")}
    assert before == after
    taken = goal.claim(agent_id="executor-1", incarnation="test")
    assert (
        (said["todo"], said["action"])
        == (taken["todo"], taken["action"])
        == ("todo_0002", "select")
    )


def test_an_ended_lease_gives_the_item_back_to_the_next_who_asks(goal: Writer) -> None:
    add_items(goal, "proposer-1", [1])
    first = take(goal, "executor-1", "one")
    wait_until(
        lambda: Reader(goal.client, goal.goal_id).should_run("executor-2")["should_run"] == "1",
        description="the lease ends",
    )
    second = take(goal, "executor-2", "two")
    assert second.todo_id == first.todo_id
    assert second.fence > first.fence
    with pytest.raises(RefusedError) as refused:
        start(goal, first)
    assert refused.value.reason in {"not_claimed", "stale_fence"}
    start(goal, second)


def test_field_case_2_a_late_result_is_refused_recorded_and_changes_nothing(goal: Writer) -> None:
    add_items(goal, "proposer-1", [1])
    first = take(goal, "executor-1", "one")
    wait_until(
        lambda: try_take(goal, "executor-2", "two") is not None, description="the lease ends"
    )
    item = Reader(goal.client, goal.goal_id).item(first.todo_id)
    with pytest.raises(RefusedError):
        start(goal, first)
    late = json.dumps({"current_fence": int(item["fence"]), "result": "evidence, commit 1234"})
    for _ in range(3):
        goal.reject_stale(first, body=late)
    reader = Reader(goal.client, goal.goal_id)
    assert reader.item(first.todo_id) == {**item, "stale": f" {first.fence} "}
    kinds = [fields["type"] for _, fields in reader.entries(Stream.EXECUTOR)]
    assert kinds.count("stale_result_rejected") == 1
    assert kinds.count("lease_expired") == 1


def test_what_is_not_late_is_not_put_on_record_as_late(goal: Writer) -> None:
    add_items(goal, "proposer-1", [1])
    held = take(goal, "executor-1")
    for fence in (held.fence, held.fence + 1):
        with pytest.raises(RefusedError) as refused:
            goal.reject_stale(replace(held, fence=fence), body='{"current_fence":0}')
        assert refused.value.reason == "not_stale"


def test_field_case_11_an_item_that_ends_three_workers_waits_under_a_gate(goal: Writer) -> None:
    add_items(goal, "proposer-1", [1, 2])
    life = {"inc": "", "host": "here", "pid": "1", "start": "1"}
    for number in range(4):
        goal.enlist(
            agent_id="executor-1",
            role="executor",
            incarnation={**life, "inc": f"life-{number}"},
            dead=f"life-{number - 1}",
            died="signal 9" if number else "",
        )
        last = take(goal, "executor-1", f"life-{number}")
        assert last.todo_id == ("todo_0001" if number < 3 else "todo_0002")
    reader = Reader(goal.client, goal.goal_id)
    assert reader.item("todo_0001")["gates"] == "1"
    gate = poison_of(reader)
    assert [(each["reason"], each["detail"]) for each in gate["recoveries"]] == [
        ("crash", "signal 9")
    ] * 3
    assert [each["incarnation"] for each in gate["recoveries"]] == ["life-0", "life-1", "life-2"]
    fences = [each["fence"] for each in gate["recoveries"]]
    assert sorted(set(fences)) == fences


@pytest.mark.parametrize(
    ("agent", "kind", "todo"),
    [
        ("proposer-1", "proposer", "todo_propose"),
        ("baseline-2", "evaluator", "todo_baseline"),
    ],
)
def test_every_kind_of_todo_waits_for_a_person_after_three_recoveries(
    any_client: redis.Redis, goal_id: str, agent: str, kind: str, todo: str
) -> None:
    goal = make_goal(any_client, goal_id, agents=[(agent, kind)], lease_ms="300")
    if todo == "todo_baseline":  # undone, as if nobody had measured yet
        goal = unmeasured(any_client, f"{goal_id}-2", agent)
    taken = take(goal, agent, "one")
    assert taken.todo_id == todo
    goal.release(taken, "evaluation_failed", detail="exit code 3: no such file")
    take(goal, agent, "two")
    take(goal, agent, "three")
    reader = Reader(goal.client, goal.goal_id)
    wait_until(lambda: lapsed(goal, agent, todo), description="the third recovery")
    gate = poison_of(reader)
    assert [each["reason"] for each in gate["recoveries"]] == [
        "evaluation_failed",
        "crash",
        "lease_expired",
    ]
    assert gate["recoveries"][0]["detail"] == "exit code 3: no such file"
    touched = int(reader.item(todo)["touched"])
    goal.decide_gate(
        operator="operator:test",
        gate_id=reader.open_gates()[0],
        verdict="approved",
        touched=touched,
        body="{}",
    )
    assert reader.item(todo).get("lapses", "") == ""
    assert take(goal, agent, "four").todo_id == todo


def lapsed(goal: Writer, agent: str, todo: str) -> bool:
    """Let another agent notice what ended; tells whether the todo waits for a person."""
    goal.claim(agent_id="baseline-1" if agent != "baseline-1" else agent, incarnation="notices")
    return Reader(goal.client, goal.goal_id).item(todo).get("gates") == "1"


def unmeasured(client: redis.Redis, goal_id: str, agent: str) -> Writer:
    """Make an approved goal without a baseline; `baseline-1` is a proposer here."""
    writer = Writer(client, goal_id)
    numbers = {**NUMBERS, "lease_ms": "300"}
    writer.create(operator=OPERATOR, contract_hash=HASH, numbers=numbers, bodies=["{}", "{}"])
    writer.approve(operator=OPERATOR, contract_hash=HASH, body="{}")
    writer.register(operator=OPERATOR, agent_id=agent, roles=["evaluator"], body="{}")
    writer.register(operator=OPERATOR, agent_id="baseline-1", roles=["curator"], body="{}")
    return writer


def poison_of(reader: Reader) -> dict[str, Any]:
    """Give the body of the one open gate, which is of kind poison and fits its record."""
    [gate_id] = reader.open_gates()
    fields = reader.gate(gate_id)
    assert fields["kind"] == "poison"
    gate: dict[str, Any] = json.loads(fields["body"])["gate"]
    Gate.model_validate_json(json.dumps(gate))
    return gate


def test_a_repeated_operation_is_applied_once_and_answered_the_same(goal: Writer) -> None:
    add_items(goal, "proposer-1", [1, 2])
    values = {"op": "op-1", "agent": "executor-1", "inc": "test", "role": "", "todo": ""}
    key = f"{{{goal.goal_id}}}"
    first = goal.call("claim", values)
    length = goal.client.xlen(f"{key}:events:executor")
    assert goal.call("claim", values) == first
    assert goal.client.xlen(f"{key}:events:executor") == length


def test_one_agent_holds_one_claim_and_one_live_incarnation(goal: Writer) -> None:
    add_items(goal, "proposer-1", [1, 2])
    assert take(goal, "executor-1").todo_id == take(goal, "executor-1").todo_id == "todo_0001"
    identity = {"inc": "a", "host": "here", "pid": "1", "start": "1"}
    goal.enlist(agent_id="executor-2", role="executor", incarnation=identity, dead="")
    with pytest.raises(RefusedError) as refused:
        goal.enlist(
            agent_id="executor-2", role="executor", incarnation={**identity, "inc": "b"}, dead=""
        )
    assert refused.value.reason == "incarnation_live"
    goal.enlist(
        agent_id="executor-2", role="executor", incarnation={**identity, "inc": "b"}, dead="a"
    )


def test_field_case_40_a_key_of_the_wrong_type_refuses_before_the_first_write(
    goal: Writer,
) -> None:
    add_items(goal, "proposer-1", [1])
    key = f"{{{goal.goal_id}}}"
    goal.client.delete(f"{key}:leases")
    goal.client.set(f"{key}:events:evaluator", "no stream")
    goal.client.delete(f"{key}:events:executor")
    goal.client.set(f"{key}:events:executor", "no stream")
    before = goal.client.hgetall(f"{key}:item:todo_0001")
    with pytest.raises(Exception, match="another program"):
        goal.claim(agent_id="executor-1", incarnation="test")
    assert goal.client.hgetall(f"{key}:item:todo_0001") == before
    assert goal.client.exists(f"{key}:leases") == 0


def test_a_pause_stops_what_begins_and_lets_what_was_started_be_evaluated(
    any_client: redis.Redis, goal_id: str
) -> None:
    agents = [("executor-1", "executor"), ("evaluator-1", "evaluator"), ("proposer-1", "proposer")]
    goal = make_goal(any_client, goal_id, agents=agents)
    add_items(goal, "proposer-1", [1, 2])
    held = take(goal, "executor-1")
    start(goal, held)
    goal.advance(
        replace(held, version=held.version + 1),
        "evidence_recorded",
        records=[("evidence_recorded", "{}")],
        commit=BASE,
    )
    goal.pause(operator="operator:test", value=True, note="lunch", body="{}")
    for agent in ("executor-1", "proposer-1"):
        assert goal.claim(agent_id=agent, incarnation="test")["reason"] == "goal_paused"
    assert take(goal, "evaluator-1").todo_id == held.todo_id


def test_a_gated_item_holds_no_lane(any_client: redis.Redis, goal_id: str) -> None:
    agents = [("executor-1", "executor"), ("proposer-1", "proposer")]
    goal = make_goal(any_client, goal_id, agents=agents, max_parallel="1")
    add_items(goal, "proposer-1", [1, 2])
    held = take(goal, "executor-1")
    start(goal, held)
    goal.open_gate(operator="operator:test", todo_id=held.todo_id, kind="owner", body="{}")
    held = replace(held, version=held.version + 1)
    evidence = [("evidence_recorded", "{}")]
    goal.advance(held, "evidence_recorded", records=evidence, commit=BASE)
    assert take(goal, "executor-1").todo_id == "todo_0002"


def test_records_that_no_row_carries_and_people_who_are_none_are_refused(
    any_client: redis.Redis, goal_id: str
) -> None:
    agents = [("executor-1", "executor"), ("proposer-1", "proposer")]
    goal = make_goal(any_client, goal_id, agents=agents)
    add_items(goal, "proposer-1", [1])
    held = take(goal, "executor-1")
    start(goal, held)
    held = replace(held, version=held.version + 1)
    planted = [("evidence_recorded", "{}"), ("evaluation_recorded", "{}")]
    with pytest.raises(RefusedError) as refused:
        goal.advance(held, "evidence_recorded", records=planted, commit=BASE)
    assert refused.value.reason == "foreign_record"
    with pytest.raises(RefusedError) as refused:
        goal.advance(held, "evidence_recorded", records=[("evidence_recorded", "no JSON")])
    assert refused.value.reason == "bad_body"
    with pytest.raises(RefusedError) as refused:
        goal.register(operator="executor-1", agent_id="executor-1", roles=["curator"], body="{}")
    assert refused.value.reason == "not_operator"


def start(goal: Writer, held: object) -> None:
    base = Reader(goal.client, goal.goal_id).goal()["champion_rev"]
    goal.advance(
        held,  # type: ignore[arg-type]
        "attempt_running",
        records=[("attempt_started", "{}")],
        base_rev=base,
        base_commit=BASE,
    )


def test_field_case_23_a_quarantined_item_is_named_and_offered_again(goal: Writer) -> None:
    add_items(goal, "proposer-1", [1])
    for life in range(3):
        take(goal, "executor-1", f"life-{life}")
    assert try_take(goal, "executor-1", "life-3") is None
    again = take(goal, "proposer-1")
    with pytest.raises(RefusedError) as refused:
        goal.propose(
            again,
            body="{}",
            text_digest=f"{goal.goal_id}-0",
            rank=1.0,
            rank_reason="",
            title="again",
            family="f",
            cursor="1",
        )
    said = refused.value
    assert (said.reason, said.missing) == ("duplicate", "hyp_0001")
    assert said.facts["item"] == "todo_0001, hyp_0001, hypothesis_proposed"
    assert said.mend == [["labmates", "gate", "show", "gate_0001"]]


def when_free(goal: Writer, agent: str) -> Held:
    """Claim as soon as there is something."""
    reader = Reader(goal.client, goal.goal_id)
    wait_until(
        lambda: reader.should_run(agent)["should_run"] == "1", description="something is free"
    )
    return take(goal, agent, "new")


def test_field_case_7_a_killed_worker_s_claim_comes_back_under_another_name(goal: Writer) -> None:
    add_items(goal, "proposer-1", [1])
    first = take(goal, "executor-1")  # and nothing is ever heard of it again
    begin = Reader(goal.client, goal.goal_id).now_ms()
    again = when_free(goal, "executor-2")
    assert again.todo_id == first.todo_id
    assert Reader(goal.client, goal.goal_id).now_ms() - begin < 300 + 500


def test_field_case_8_a_role_never_holds_more_than_it_can_start_now(goal: Writer) -> None:
    todos = add_items(goal, "proposer-1", [1, 2, 3, 4, 5])
    taken = [take(goal, "executor-1").todo_id for _ in range(5)]
    assert taken == [todos[0]] * 5
    assert list(Reader(goal.client, goal.goal_id).leases()) == [todos[0]]


def test_field_case_14_one_of_many_who_notice_an_ended_lease_records_it(
    goal: Writer, any_server_url: str
) -> None:
    add_items(goal, "proposer-1", [1])
    held = take(goal, "executor-1")
    reader = Reader(goal.client, goal.goal_id)
    wait_until(
        lambda: reader.leases()[held.todo_id] <= reader.now_ms(), description="the lease ends"
    )
    begin = threading.Barrier(8)

    def notice(number: int) -> str:
        with connect(any_server_url) as client:
            begin.wait()
            agent = ("executor-2", "proposer-1", "baseline-1")[number % 3]
            answer = Writer(client, goal.goal_id).claim(agent_id=agent, incarnation="test")
            return str(answer["reason"])

    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(notice, range(8)))
    assert len(said) == 8
    ended = [
        fields["fence"]
        for stream in (Stream.EXECUTOR, Stream.PROPOSER, Stream.EVALUATOR)
        for _, fields in reader.entries(stream)
        if fields["type"] == "lease_expired"
    ]
    assert ended == [str(held.fence)]


def test_field_case_17_a_late_release_leaves_the_second_owner_its_claim(goal: Writer) -> None:
    add_items(goal, "proposer-1", [1])
    first = take(goal, "executor-1", "one")
    second = when_free(goal, "executor-2")
    with pytest.raises(RefusedError) as refused:
        goal.release(first, "stopped")
    assert refused.value.reason == "not_claimed"
    assert refused.value.message == "todo_0001 is claimed by executor-2, not by executor-1"
    item = Reader(goal.client, goal.goal_id).item(first.todo_id)
    assert (item["claimed_by"], item["fence"]) == ("executor-2", str(second.fence))


def test_field_case_5_there_is_no_lock_and_no_key_that_goes_by_itself(
    any_client: redis.Redis, goal_id: str
) -> None:
    Scenario(any_client, goal_id).open().play()
    names = [str(key) for key in any_client.keys(f"{{{goal_id}}}*")]
    assert len(names) > 20
    assert [name for name in names if any_client.ttl(name) != -1] == []
    assert [name for name in names if "lock" in name.lower().replace("blocked", "")] == []


def test_research_case_39_an_evaluator_is_called_by_evidence_and_by_nothing_else(
    any_client: redis.Redis, goal_id: str
) -> None:
    agents = [("executor-1", "executor"), ("proposer-1", "proposer"), ("evaluator-1", "evaluator")]
    goal = make_goal(any_client, goal_id, agents=agents)
    add_items(goal, "proposer-1", [1])
    held = take(goal, "executor-1")
    start(goal, held)
    wake = keys.wake(goal_id, "evaluator")
    any_client.delete(wake)
    assert try_take(goal, "evaluator-1") is None
    held = replace(held, version=held.version + 1)
    evidence = [("evidence_recorded", "{}")]
    goal.advance(held, "evidence_recorded", records=evidence, commit=BASE)
    assert any_client.llen(wake) == 1
    evaluated = take(goal, "evaluator-1")
    with pytest.raises(RefusedError) as refused:
        goal.advance(evaluated, "evaluated")
    assert refused.value.reason == "missing_record"
