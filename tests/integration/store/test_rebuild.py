"""Derived state out of the streams: nothing else changes, and work goes on."""

import contextlib
import random
import threading
from typing import Any

import pytest
import redis

from contracts.canonical import chain_digest
from contracts.errors import RefusedError
from contracts.store import keys
from contracts.store.rebuild import diagnose, rebuild
from contracts.store.snapshot import known_goals_by_scan
from contracts.words import Stream
from projection.verify import verify
from tests.integration.projection.test_derived import edit
from tests.integration.store.dumps import derived, drop_derived, dump, unlike
from tests.property.test_replay_accepts_the_store import EXTRA, Chaos
from tests.scenario import PLANS, Scenario


def chaos_of(client: redis.Redis, goal_id: str, seed: int, steps: int) -> Chaos:
    """Play some steps of a goal."""
    chaos = Chaos(
        client, goal_id, (*PLANS, *EXTRA), policy={"owner_gate": seed % 2 == 0}, seed=seed
    )
    chaos.open()
    for _ in range(steps):
        with contextlib.suppress(RefusedError):
            chaos.one()
    return chaos


def test_a_sound_goal_is_only_read(redis_client: redis.Redis, goal_id: str) -> None:
    chaos = chaos_of(redis_client, goal_id, 1, 60)
    before = dump(redis_client, goal_id)

    assert diagnose(chaos.reader).findings == ()
    assert rebuild(chaos.reader) == ()

    assert dump(redis_client, goal_id) == before


@pytest.mark.parametrize("seed", range(5))
def test_all_derived_state_comes_back_from_the_streams_alone_and_the_play_goes_on(
    any_client: redis.Redis, goal_id: str, seed: int
) -> None:
    chaos = chaos_of(any_client, goal_id, seed, 25 + 45 * seed)
    before = derived(any_client, goal_id)
    streams = {each: chaos.reader.entries(each) for each in Stream}
    drop_derived(any_client, goal_id)

    found = rebuild(chaos.reader)

    assert found
    assert unlike(derived(any_client, goal_id), before) == {}
    assert {each: chaos.reader.entries(each) for each in Stream} == streams
    assert verify(chaos.reader).sound
    for _ in range(60):
        with contextlib.suppress(RefusedError):
            chaos.one()
    assert verify(chaos.reader).sound


def test_every_edit_of_a_derived_hash_is_mended(redis_client: redis.Redis, goal_id: str) -> None:
    chaos = chaos_of(redis_client, goal_id, 4, 120)
    before = derived(redis_client, goal_id)
    tried = 0
    for seed in range(60):
        if edit(chaos, random.Random(seed)) is None:
            continue
        tried += 1
        assert rebuild(chaos.reader), f"seed {seed}"
        assert unlike(derived(redis_client, goal_id), before) == {}, f"seed {seed}"
    assert tried > 30


def test_members_types_and_strangers_are_mended(redis_client: redis.Redis, goal_id: str) -> None:
    own = Scenario(redis_client, goal_id).open().play(6)
    assert own.claim("executor-1")
    before, start = derived(redis_client, goal_id), keys.prefix(goal_id)
    redis_client.zadd(keys.ready(goal_id, "sign"), {"todo_0001": 0})
    redis_client.zadd(keys.gates(goal_id), {"gate_0001": 7})
    redis_client.sadd(keys.agents(goal_id), "stranger")
    redis_client.hset(keys.agent(goal_id, "intruder"), "roles", "curator")
    redis_client.hset(keys.item(goal_id, "todo_0077"), "state", "promoted")
    redis_client.hset(f"{start}:texts", "0" * 64, "hyp_0099")
    redis_client.delete(keys.item(goal_id, "todo_0002"), keys.leases(goal_id))
    redis_client.set(keys.item(goal_id, "todo_0002"), "mine")
    redis_client.delete(keys.wake(goal_id, "executor"))
    redis_client.set(keys.wake(goal_id, "executor"), "mine")

    named = {each.name for each in rebuild(own.reader)}

    assert {"key item:todo_0077", "key item:todo_0002", "key wake:executor"} <= named
    assert {"intruder roles", "agents stranger", "open gates gate_0001"} <= named
    assert unlike(derived(redis_client, goal_id), before) == {}
    assert diagnose(own.reader).findings == ()
    own.play()
    assert verify(own.reader).sound


@pytest.mark.parametrize(
    "change", ["event gone", "event altered", "end cut", "stream gone", "end rewritten"]
)
def test_records_that_contradict_themselves_are_never_mended_away(
    redis_client: redis.Redis, goal_id: str, change: str
) -> None:
    own = Scenario(redis_client, goal_id).open().play(8)
    key = keys.events(goal_id, Stream.EVALUATOR)
    ids = [entry_id for entry_id, _ in own.reader.entries(Stream.EVALUATOR)]
    if change == "event gone":
        redis_client.xdel(key, ids[1])
    elif change == "event altered":
        fields: dict[Any, Any] = dict(own.reader.entries(Stream.EVALUATOR)[-1][1])
        redis_client.xdel(key, ids[-1])
        redis_client.xadd(key, fields | {"at": "1"}, id=f"{ids[-1].split('-')[0]}-99")
    elif change == "end cut":
        redis_client.xdel(key, ids[-1])
        redis_client.hdel(keys.heads(goal_id), Stream.EVALUATOR)
    elif change == "end rewritten":  # with a digest that fits; its head is there, another's is not
        before_last, last = own.reader.entries(Stream.EVALUATOR)[-2:]
        content = {k: v for k, v in last[1].items() if k != "digest"} | {"at": "1"}
        digest = chain_digest(before_last[1]["digest"], content.items())
        rewritten: dict[Any, Any] = content | {"digest": digest}
        redis_client.xdel(key, last[0])
        redis_client.xadd(key, rewritten, id=f"{last[0].split('-')[0]}-99")
        redis_client.hdel(keys.heads(goal_id), Stream.CURATOR)
    else:
        redis_client.delete(key)
    redis_client.hset(keys.goal(goal_id), "cost", "7")
    before = dump(redis_client, goal_id)

    assert diagnose(own.reader).violations
    assert rebuild(own.reader) == ()

    assert dump(redis_client, goal_id) == before


def test_mending_beside_running_agents_loses_no_step(
    redis_client: redis.Redis, goal_id: str
) -> None:
    own = Scenario(redis_client, goal_id).open()
    ended = threading.Event()

    def damage() -> None:
        while not ended.is_set():
            for name in ("start", "evaluate", "cosign_curator"):
                redis_client.delete(keys.ready(goal_id, name))
            redis_client.delete(f"{keys.prefix(goal_id)}:hyps")
            rebuild(own.reader)

    other = threading.Thread(target=damage)
    other.start()
    try:
        with contextlib.suppress(RefusedError):
            own.play()
    finally:
        ended.set()
        other.join()
    rebuild(own.reader)
    own.play()

    found = verify(own.reader)
    assert found.sound
    assert found.phase == "done"


def test_goals_are_found_without_their_list(redis_client: redis.Redis, goal_id: str) -> None:
    own = Scenario(redis_client, goal_id).open()
    redis_client.srem(keys.GOALS, goal_id)
    redis_client.delete(keys.goal(goal_id))

    assert own.goal_id in known_goals_by_scan(redis_client)
