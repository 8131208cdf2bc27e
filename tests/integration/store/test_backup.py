"""Backups: the same events on the other side, to the byte; a damaged file writes nothing."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis

from contracts.errors import LabmatesError, RecordsError, RefusedError, UsageError
from contracts.store import keys
from contracts.store.backup import collect, read_backup, restore_goals, write_backup
from contracts.store.connect import connect
from contracts.store.embedded import ServerStatus, ensure_server
from contracts.store.reader import Reader, goal_ids
from contracts.store.rebuild import diagnose
from contracts.store.removal import drop_goal
from contracts.words import Stream
from projection.verify import verify
from tests.integration.store.dumps import derived, dump, unlike
from tests.scenario import Scenario


def streams(client: redis.Redis, goal_id: str) -> dict[str, Any]:
    """Give the events and heads of a goal, as bytes, fields in their order."""
    found: dict[str, Any] = {
        stream: client.execute_command(  # type: ignore[no-untyped-call]
            "XRANGE", keys.events(goal_id, stream), "-", "+", NEVER_DECODE=True
        )
        for stream in Stream
    }
    for stream in Stream:
        found[stream] = [(entry, list(fields.items())) for entry, fields in found[stream]]
    return found | {"heads": client.hgetall(keys.heads(goal_id))}


@pytest.fixture
def played(redis_client: redis.Redis, goal_id: str) -> Scenario:
    """Give a goal in the middle of its work, with a claim."""
    own = Scenario(redis_client, goal_id).open().play(6)
    assert own.claim("executor-1")
    return own


@pytest.mark.parametrize("name", ["lab.jsonl", "lab.jsonl.gz"])
def test_a_goal_travels_to_another_server_and_back_to_the_byte(
    any_server: ServerStatus, store_home: Path, goal_id: str, tmp_path: Path, name: str
) -> None:
    with connect(any_server.url) as here, connect(ensure_server(store_home)) as there:
        own = Scenario(here, goal_id).open().play(6)
        assert own.claim("executor-1")
        before, seen = streams(here, goal_id), verify(own.reader)
        state, born = derived(here, goal_id), own.reader.goal()["store"]
        write_backup(tmp_path / name, [collect(own.reader)])

        assert restore_goals(there, read_backup(tmp_path / name)) == [goal_id]

        other = Reader(there, goal_id)
        assert streams(there, goal_id) == before
        assert unlike(derived(there, goal_id), state) == {}
        assert verify(other).to_json_dict() == seen.to_json_dict()
        assert goal_ids(there) == [goal_id]
        assert diagnose(other).findings == ()

        drop_goal(own.reader, seen.heads)
        assert dump(here, goal_id) == {}
        assert restore_goals(here, [collect(other)]) == [goal_id]
        assert streams(here, goal_id) == before
        assert len({born, other.goal()["store"], own.reader.goal()["store"]}) == 3
        own.play()
        assert verify(own.reader).exit_code() == 0


def test_a_second_restore_changes_nothing_and_completes_the_list(
    played: Scenario, tmp_path: Path
) -> None:
    found = collect(played.reader)
    played.client.srem(keys.GOALS, played.goal_id)
    before = dump(played.client, played.goal_id)

    assert restore_goals(played.client, [found]) == []

    assert dump(played.client, played.goal_id) == before
    assert played.goal_id in goal_ids(played.client)


def test_a_goal_with_other_events_refuses_the_whole_restore(
    played: Scenario, store_home: Path
) -> None:
    with connect(ensure_server(store_home)) as there:
        one, two = Scenario(there, "one").open(), collect(played.reader)
        old = collect(one.reader)
        one.play(2)
        before = dump(there, "one")

        with pytest.raises(RefusedError) as caught:
            restore_goals(there, [two, old])

        assert caught.value.reason == "goal_exists"
        assert dump(there, "one") == before
        assert dump(there, played.goal_id) == {}


def test_a_file_is_never_overwritten_unasked(played: Scenario, tmp_path: Path) -> None:
    file = tmp_path / "lab.jsonl"
    file.write_text("mine")

    with pytest.raises(UsageError, match="exists already"):
        write_backup(file, [collect(played.reader)])

    assert file.read_text() == "mine"
    write_backup(file, [collect(played.reader)], force=True)
    assert read_backup(file)
    assert [each.name for each in tmp_path.iterdir()] == ["lab.jsonl"]


def test_every_cut_and_every_change_of_a_backup_is_refused_by_its_line(
    played: Scenario, tmp_path: Path
) -> None:
    file = tmp_path / "lab.jsonl"
    write_backup(file, [collect(played.reader)])
    lines = file.read_bytes().splitlines(keepends=True)
    bad = tmp_path / "bad.jsonl"

    def problem(content: bytes) -> LabmatesError:
        bad.write_bytes(content)
        with pytest.raises((UsageError, RecordsError)) as caught:
            read_backup(bad)
        assert caught.value.exit_code in {2, 6}
        return caught.value

    for count in range(len(lines)):
        assert f"line {count}" in problem(b"".join(lines[:count])).message
    for number, line in enumerate(lines, start=1):
        cut = problem(b"".join(lines[: number - 1]) + line[: len(line) // 2]).message
        assert f"line {number}:" in cut
        missing = problem(b"".join(lines[: number - 1] + lines[number:])).message
        assert "line " in missing
        if b'"id":' in line:
            value = json.loads(line)
            value["f"] = [[n, "1" if n == "at" else v] for n, v in value["f"]]
            changed = [*lines]
            changed[number - 1] = json.dumps(value).encode() + b"\n"
            found = problem(b"".join(changed))
            assert f"line {number}:" in found.message
            assert found.exit_code == 6
    assert problem(b"".join([*lines, lines[-1]])).exit_code == 2
    header = lines[0].replace(b"made_at", b"made_xx")
    assert "digest" in problem(b"".join([header, *lines[1:]])).message
    assert "newer" not in problem(lines[0].replace(b":1}", b":9}") + b"".join(lines[1:])).message


def test_a_cut_compressed_backup_is_refused(played: Scenario, tmp_path: Path) -> None:
    file = tmp_path / "lab.gz"
    write_backup(file, [collect(played.reader)])
    whole = file.read_bytes()
    for size in (0, 5, len(whole) // 2, len(whole) - 4):
        file.write_bytes(whole[:size])
        with pytest.raises(UsageError, match=r"line \d+"):
            read_backup(file)
    file.write_bytes(gzip.compress(b"\xff\n"))
    with pytest.raises(UsageError, match="line 1"):
        read_backup(file)


def test_records_that_contradict_themselves_are_not_backed_up(played: Scenario) -> None:
    key = keys.events(played.goal_id, Stream.EXECUTOR)
    first = played.reader.entries(Stream.EXECUTOR)[0][0]
    played.client.xdel(key, first)

    with pytest.raises(RecordsError, match="contradict"):
        collect(played.reader)


def test_a_claim_of_before_a_restore_is_refused_in_the_restored_store(
    played: Scenario, tmp_path: Path
) -> None:
    found = played.claim("executor-1")
    assert found
    held, store = found[0], played.reader.goal()["store"]
    records = collect(played.reader)
    drop_goal(played.reader, None)
    restore_goals(played.client, [records])
    old = replace(held, store=store)
    for call in (
        lambda: played.writer.release(old, "stopped"),
        lambda: played.writer.renew(agent_id="executor-1", incarnation="x", held=None, store=store),
        lambda: played.writer.claim(agent_id="executor-1", incarnation="x", store=store),
    ):
        with pytest.raises(RefusedError) as caught:
            call()
        assert caught.value.reason == "store_changed"
    now = replace(held, store=played.reader.goal()["store"])
    played.writer.release(now, "stopped")
