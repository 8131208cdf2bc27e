"""The reply of every write is lost once: each is applied once, and its first answer given again."""

import re
from dataclasses import replace
from pathlib import Path

import redis

from contracts.store import keys, library
from contracts.store.connect import connect
from contracts.store.reader import Reader
from contracts.store.writer import Writer
from contracts.words import Role, Stream
from tests.goals import add_items, make_goal, take
from tests.lost_replies import LostReplies, losing_replies
from tests.peers import add_idea, assess, review
from tests.scenario import OPERATOR, PLANS, Scenario, body
from tests.support import rounds
from tests.tiny import labmates

NO = b"should_run\r\n$1\r\n0"
LIVES = {"inc": "life", "host": "box", "pid": "1", "start": "1.00"}


def offered() -> set[str]:
    """Give every function of the library that writes."""
    return {
        f"lm_{name}_v1"
        for name in re.findall(r"^offer\('(\w+)'", library.source()[0], re.MULTILINE)
    }


def whole_state(client: redis.Redis, goal_id: str) -> dict[str, object]:
    """Give what every key of a goal holds; of a stream its length and its last entry."""
    names = sorted(str(key) for key in client.keys(f"{keys.prefix(goal_id)}*"))
    batch = client.pipeline(transaction=False)
    for name in names:
        kind = name.split(":")[1]
        if kind == "events":
            batch.execute_command("XINFO", "STREAM", name)  # type: ignore[no-untyped-call]
        elif kind in {"ready", "leases", "gates"}:
            batch.zrange(name, 0, -1, withscores=True)
        elif kind == "wake":
            batch.lrange(name, 0, -1)
        elif kind == "agents":
            batch.smembers(name)
        else:
            batch.hgetall(name)
    return dict(zip(names, batch.execute(), strict=True))


def assert_each_once(proxy: LostReplies) -> None:
    assert [proxy.cut[operation] for operation in proxy.changed] == []
    # a no is no step: it changes nothing, and is found anew
    steps = {each for each, reply in proxy.first.items() if NO not in reply}
    assert {each: proxy.first[each] for each in steps} == {
        each: proxy.second.get(each) for each in steps
    }


def play_the_rest(scenario: Scenario) -> None:
    """Call what no plan of the scenario calls."""
    writer = scenario.writer
    writer.pause(operator=OPERATOR, value=True, note="lunch", body=body(note="lunch"))
    writer.pause(operator=OPERATOR, value=False, note="", body="{}")
    writer.enlist(agent_id="executor-1", role="executor", incarnation=LIVES, dead="")
    writer.renew(agent_id="executor-1", incarnation="life", held=None)
    add_idea(scenario, PLANS[7])
    writer.leave(agent_id="executor-1", incarnation="life")
    held = scenario.claim("executor-1")
    assert held is not None
    writer.renew(agent_id="executor-1", incarnation=held[0].incarnation, held=held[0])
    writer.release(held[0], "stopped")
    writer.reject_stale(held[0], body=body(current_fence=1))
    todo = held[0].todo_id
    gate = writer.open_gate(operator=OPERATOR, todo_id=todo, kind="owner", body=GATE)
    touched = int(scenario.reader.item(todo)["touched"])
    writer.decide_gate(
        operator=OPERATOR, gate_id=gate, verdict="approved", touched=touched, body=DECISION
    )


GATE = body(gate={"schema_version": "operator_gate_v0", "kind": "owner", "question": "?"})
DECISION = body(
    decision={"schema_version": "gate_decision_v0", "verdict": "approved", "shown": "0"}
)


def test_every_write_whose_reply_was_lost_is_applied_once_and_answered_the_same(
    any_client: redis.Redis, any_server_url: str, goal_id: str, short_path: Path
) -> None:
    def look() -> object:
        return whole_state(any_client, goal_id)

    with (
        losing_replies(any_server_url, short_path / "s", look, rounds(30)) as proxy,
        connect(proxy.url) as client,
    ):
        scenario = Scenario(client, goal_id, plans=PLANS[:3]).open()
        while scenario.proposed < 3:
            for agent in ("evaluator-1", "proposer-1"):
                scenario.step(agent)
        play_the_rest(scenario)
        scenario.play()
        for hypothesis_id in ("hyp_0001", "hyp_0002"):
            assert review(scenario, "evaluator-1", hypothesis_id)[1]
            assert assess(scenario, "proposer-1", hypothesis_id, "supports")[1]
        declined(Writer(client, f"{goal_id}-2", url=proxy.url), any_client)
    assert_each_once(proxy)
    assert set(proxy.cut.values()) == offered()


def declined(writer: Writer, plain: redis.Redis) -> None:
    """Call `spend` and `decline` on a goal of its own."""
    agents = [("executor-1", "executor"), ("proposer-1", "proposer"), ("evaluator-1", "evaluator")]
    make_goal(plain, writer.goal_id, agents=agents, retries="0")
    add_items(Writer(plain, writer.goal_id), "proposer-1", [1])
    held = take(writer, "executor-1")
    base = Reader(plain, writer.goal_id).goal()["champion_rev"]
    started = [("attempt_started", "{}")]
    writer.advance(held, "attempt_running", records=started, base_rev=base)
    held = replace(held, version=held.version + 1)
    writer.spend(held, micro_usd=1, body="{}")
    writer.advance(held, "needs_retry", records=[("retry_recorded", "{}")])
    held = take(writer, "proposer-1")
    writer.sign(held, "retired", signature="{}")
    held = take(writer, "evaluator-1")
    assert held.role == Role.EVALUATOR
    writer.decline(held, signature="{}")


def test_the_commands_of_quota_are_applied_once_each(
    server_url: str, redis_client: redis.Redis, goal_id: str, short_path: Path
) -> None:
    writer = make_goal(
        redis_client,
        goal_id,
        agents=[("executor-1", "executor"), ("proposer-1", "proposer")],
    )
    add_items(writer, "proposer-1", [1])
    with losing_replies(
        server_url, short_path / "s", lambda: whole_state(redis_client, goal_id)
    ) as proxy:
        asked = ["--agent-id", "executor-1", "--goal-id", goal_id, "--store", proxy.url, "--json"]
        for command in ("claim", "renew", "release"):
            done = labmates("quota", command, *asked)
            assert done.returncode == 0, done.stderr
    assert_each_once(proxy)
    assert list(proxy.cut.values()) == ["lm_claim_v1", "lm_renew_v1", "lm_release_v1"]
    kinds = [fields["type"] for _, fields in Reader(redis_client, goal_id).entries(Stream.EXECUTOR)]
    assert kinds == ["claimed", "selected", "released"]


def test_two_processes_of_one_operator_do_not_forget_each_others_operations(
    any_client: redis.Redis, goal_id: str
) -> None:
    writer = make_goal(any_client, goal_id, agents=[("executor-1", "executor")])
    first = {"op": "one", "agent": OPERATOR, "value": "1", "note": "", "body1": "{}"}
    answer = writer.call("pause", first)
    for number in range(100):
        body1 = body(note="another process")
        writer.pause(operator=OPERATOR, value=bool(number % 2), note="", body=body1)
    assert writer.call("pause", first) == answer
    kept = any_client.hkeys(keys.operations(goal_id, OPERATOR))
    assert len([name for name in kept if str(name).startswith("op:")]) == 101
    for number in range(100):
        writer.pause(operator=OPERATOR, value=bool(number % 2), note="", body="{}")
    kept = any_client.hkeys(keys.operations(goal_id, OPERATOR))
    assert len([name for name in kept if str(name).startswith("op:")]) == 128
