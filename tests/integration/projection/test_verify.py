"""`verify` on a real store, and on copies of it that somebody changed."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from contracts.canonical import chain_digest
from contracts.store import keys
from contracts.store.connect import connect
from contracts.store.embedded import ensure_server
from contracts.store.reader import Reader
from contracts.words import Phase, Stream
from projection.verify import Verification, verify
from tests.scenario import Scenario

Copied = dict[str, list[tuple[str, dict[str, str]]]]
Fields = dict[Any, Any]
"""What redis-py takes for text fields."""


@pytest.fixture
def other_store(store_home: Path) -> Iterator[redis.Redis]:
    """Give a second server."""
    with connect(ensure_server(store_home)) as client:
        yield client


def streams_of(scenario: Scenario) -> Copied:
    """Read a goal's streams."""
    return {stream: scenario.reader.entries(stream) for stream in Stream}


def copy(scenario: Scenario, target: redis.Redis, streams: Copied) -> Reader:
    """Copy a goal, with these streams, entry by entry under their own ids."""
    goal_id, source = scenario.goal_id, scenario.client
    derived = [
        key
        for key in map(str, source.scan_iter(match=f"{keys.prefix(goal_id)}*"))
        if ":events:" not in key
    ]
    with target.pipeline() as batch:  # one batch costs one write to the disk
        for key in target.scan_iter(match=f"{keys.prefix(goal_id)}*"):
            batch.delete(key)
        for stream, entries in streams.items():
            for entry_id, fields in entries:
                batch.xadd(keys.events(goal_id, stream), Fields(fields), id=entry_id)
        for key in derived:
            kind = source.type(key)
            if kind == "hash":
                batch.hset(key, mapping=Fields(source.hgetall(key)))
            elif kind == "zset":
                scores: list[Any] = list(source.zrange(key, 0, -1, withscores=True))
                batch.zadd(key, Fields(scores))
            elif kind == "set":
                batch.sadd(key, *source.smembers(key))
        batch.execute()
    return Reader(target, goal_id)


def named(found: Verification, entry_id: str) -> bool:
    """Tell whether a violation names an entry."""
    return any(each.entry_id == entry_id for each in found.violations)


def test_an_honest_goal_is_sound_and_done(played: Scenario) -> None:
    found = verify(played.reader)

    assert found.violations == ()
    assert [each for each in (*found.derived, *found.progress) if not each.passed] == []
    assert found.phase == Phase.DONE
    assert found.exit_code() == 0
    assert found.heads == played.reader.heads()


def test_an_unaltered_copy_is_sound_too(played: Scenario, other_store: redis.Redis) -> None:
    reader = copy(played, other_store, streams_of(played))

    assert verify(reader).exit_code() == 0


def test_a_goal_under_way_is_sound_but_not_done(redis_client: redis.Redis, goal_id: str) -> None:
    reader = Scenario(redis_client, goal_id).open().play(limit=6).reader

    found = verify(reader)

    assert found.violations == ()
    assert (found.exit_code(), found.exit_code(records_only=True)) == (1, 0)


def alter(value: str, draw: random.Random) -> str:
    """Change a field's text in one place."""
    if not value:
        return "x"
    place = draw.randrange(len(value))
    old = value[place]
    new = draw.choice([char for char in "0123456789abcdefxyz" if char != old])
    return value[:place] + new + value[place + 1 :]


def test_any_field_of_any_event_that_is_altered_is_named(
    played: Scenario, other_store: redis.Redis
) -> None:
    original = streams_of(played)
    places = [
        (stream, position, name)
        for stream, entries in original.items()
        for position, (_, fields) in enumerate(entries)
        for name in fields
    ]
    missed = []
    for seed in range(50):
        draw = random.Random(seed)
        stream, position, name = draw.choice(places)
        streams = {each: list(entries) for each, entries in original.items()}
        entry_id, fields = streams[stream][position]
        changed = {**fields, name: alter(fields[name], draw)}
        streams[stream][position] = entry_id, changed
        found = verify(copy(played, other_store, streams))
        if found.exit_code() != 6 or not named(found, entry_id):
            missed.append((seed, stream, entry_id, name))
        # The event behind it may show the break, and one whose revision it took; no more.
        elif len({each.entry_id for each in found.violations if each.entry_id}) > 3:
            missed.append((seed, "others", "too", name))

    assert missed == []


def test_a_field_that_is_added_or_left_out_is_named(
    played: Scenario, other_store: redis.Redis
) -> None:
    original = streams_of(played)
    entry_id, fields = original["executor"][3]
    more = {**fields, "note": "hello"}
    less = {name: value for name, value in fields.items() if name != "agent"}
    for changed in (more, less):
        streams = {**original, "executor": list(original["executor"])}
        streams["executor"][3] = entry_id, changed
        found = verify(copy(played, other_store, streams))
        assert found.exit_code() == 6
        assert named(found, entry_id)


def test_one_event_that_is_removed_is_named_by_its_revision(
    played: Scenario, other_store: redis.Redis
) -> None:
    original = streams_of(played)
    last = {stream: len(entries) - 1 for stream, entries in original.items() if entries}
    draw = random.Random(20)
    places = [(stream, draw.randrange(count + 1)) for stream, count in last.items()]
    for stream, position in [*places, *last.items()]:
        streams = {each: list(entries) for each, entries in original.items()}
        _, fields = streams[stream].pop(position)
        found = verify(copy(played, other_store, streams))
        assert found.exit_code() == 6
        revisions = [each.revision for each in found.violations if not each.entry_id]
        assert int(fields["rev"]) in revisions, (stream, position)


def test_two_events_that_changed_places_are_named(
    played: Scenario, other_store: redis.Redis
) -> None:
    streams = streams_of(played)
    executor = list(streams["executor"])
    (first, one), (second, two) = executor[4], executor[5]
    executor[4], executor[5] = (first, two), (second, one)

    found = verify(copy(played, other_store, {**streams, "executor": executor}))

    assert found.exit_code() == 6
    assert named(found, first)


@pytest.mark.parametrize("stream", list(Stream))
def test_an_event_added_by_plain_xadd_is_named(
    own: Scenario, redis_client: redis.Redis, stream: Stream
) -> None:
    goal_id = own.goal_id
    fields = {"type": "boundary_noted", "rev": "999", "at": "0", "body": "{}"}
    entry_id = redis_client.xadd(keys.events(goal_id, stream), Fields(fields))

    found = verify(own.reader)

    assert found.exit_code() == 6
    assert named(found, str(entry_id))


def test_a_copy_of_a_real_event_added_by_plain_xadd_is_named(
    own: Scenario, redis_client: redis.Redis
) -> None:
    _, fields = own.reader.entries(Stream.EVALUATOR)[-1]
    entry_id = redis_client.xadd(keys.events(own.goal_id, "evaluator"), Fields(fields))

    found = verify(own.reader)

    assert found.exit_code() == 6
    assert {each.entry_id for each in found.violations} == {str(entry_id)}


def forge(played: Scenario, client: redis.Redis, stream: Stream, fields: dict[str, str]) -> str:
    """Append an event as somebody would who knows the chain and keeps all derived state right."""
    goal_id = played.goal_id
    heads = played.reader.heads()
    seq, digest = heads[stream].split(" ")
    revision = str(int(played.reader.goal()["rev"]) + 1)
    entry = {**fields, "rev": revision, "at": "1790000000000", "seq": str(int(seq) + 1)}
    entry["digest"] = chain_digest(digest, list(entry.items()))
    entry_id = client.xadd(keys.events(goal_id, stream), Fields(entry))
    client.hset(keys.heads(goal_id), stream, f"{entry['seq']} {entry['digest']}")
    client.hset(keys.goal(goal_id), "rev", revision)
    return str(entry_id)


def test_a_forged_promotion_with_a_right_digest_is_caught_by_replay(
    redis_client: redis.Redis, goal_id: str
) -> None:
    played = Scenario(redis_client, goal_id).open().play(limit=4)
    victim = next(
        item
        for item in map(played.reader.item, [f"todo_{n:04d}" for n in range(1, 9)])
        if item.get("state") not in {None, "promoted", "retired"}
    )
    entry_id = forge(
        played,
        redis_client,
        Stream.CURATOR,
        {
            "type": "signed",
            "writer": "curator",
            "role": "curator",
            "agent": "curator-1",
            "todo": next(t for t, i in _items(played) if i == victim),
            "hyp": victim["hyp"],
            "from": victim["state"],
            "to": "promoted",
            "version": str(int(victim["version"]) + 1),
            "fence": victim.get("fence", "1"),
            "body": '{"signature":{"evidence_revision":1,"order":"second","reason":'
            '"holdout_validated","to_state":"promoted"}}',
        },
    )

    found = verify(played.reader)

    assert found.exit_code() == 6
    assert {each.entry_id for each in found.violations} == {entry_id}


def _items(played: Scenario) -> list[tuple[str, dict[str, str]]]:
    return [(todo, played.reader.item(todo)) for todo in (f"todo_{n:04d}" for n in range(1, 9))]


def test_a_forged_event_of_an_agent_that_is_not_on_the_roster_is_caught(
    own: Scenario, redis_client: redis.Redis
) -> None:
    entry_id = forge(
        own,
        redis_client,
        Stream.CURATOR,
        {
            "type": "boundary_noted",
            "writer": "curator",
            "role": "curator",
            "agent": "stranger",
            "body": '{"note":"all is well"}',
        },
    )

    found = verify(own.reader)

    assert [(each.entry_id, each.what) for each in found.violations] == [
        (entry_id, "stranger is not on the roster as curator")
    ]


def test_derived_state_that_disagrees_with_the_events_is_a_contradiction(
    own: Scenario, redis_client: redis.Redis
) -> None:
    redis_client.hset(keys.goal(own.goal_id), "champion_commit", "0" * 40)

    found = verify(own.reader)

    assert found.exit_code() == 6
    assert [each.name for each in found.derived if not each.passed] == ["champion_commit"]


def test_an_added_event_of_bytes_that_are_no_text_is_named(
    own: Scenario, redis_client: redis.Redis
) -> None:
    key = keys.events(own.goal_id, Stream.EXECUTOR)
    entry_id = redis_client.xadd(key, Fields({"type": "spent", b"\xff\xfe": b"\x80"}))

    found = verify(own.reader)

    assert found.exit_code() == 6
    assert named(found, str(entry_id))
