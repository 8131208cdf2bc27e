"""Goals as a file: their events with their entry ids, and nothing that can be made again from them.

Theory of operation. Server files do not travel between versions, so a backup is logical. The file
is JSON lines: a header; per goal one line with its heads and what no event gives back, then its
events; at the end the number of lines and their digest. It is written beside its place and moved
there whole. While it is read every line is checked, every event is checked against its chain and
replayed, and only then is anything written. A goal is restored in one transaction, its events and
the derived state that they imply, so an interrupted restore leaves the whole goal or nothing of it;
the list of goals comes last, and a second restore completes it. A restored goal is a new
incarnation of itself (`store` in its hash): workers that knew the old one are told.
"""

import gzip
import hashlib
import json
import os
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import redis
from redis.exceptions import WatchError

from contracts.canonical import canonical
from contracts.chain import Entry
from contracts.errors import MachineError, RecordsError, RefusedError, UsageError
from contracts.expected import expected_state, lease_ms_of
from contracts.ids import is_goal_id, new_incarnation
from contracts.replay_state import GoalState, Violation
from contracts.store import keys
from contracts.store.connect import translate, with_retries
from contracts.store.library import ensure_library
from contracts.store.reader import Reader
from contracts.store.rebuild import (
    check_records,
    key_types,
    put_state,
    wake_everybody,
)
from contracts.store.snapshot import SNAPSHOT_TRIES, Snapshot, read_snapshot
from contracts.words import Stream

if TYPE_CHECKING:
    from redis.client import Pipeline

FORMAT, VERSION = "labmates_backup", 1
KEPT = ("lease_ms", "source_cursor")
"""Fields of the goal's hash that no event gives back, and that travel with it."""


@dataclass(frozen=True, slots=True)
class GoalRecords:
    """One goal, whole and checked.

    Attributes:
        state: As its events replay.
        kept: What no event gives back (`KEPT`).
    """

    goal_id: str
    entries: Mapping[Stream, list[Entry]]
    heads: Mapping[str, str]
    state: GoalState
    kept: Mapping[str, str]

    @property
    def events(self) -> int:
        """How many events the goal has."""
        return sum(map(len, self.entries.values()))


def collect(reader: Reader) -> GoalRecords:
    """Read a goal to be backed up.

    Raises:
        UsageError: There is no such goal.
        RecordsError: Its records contradict themselves.
    """
    snapshot = read_snapshot(reader)
    state, violations, heads = check_records(snapshot)
    if violations:
        first, goal_id = violations[0], reader.goal_id
        message = f"the records of {goal_id} contradict themselves; no copy is made of them"
        facts = {"event": f"revision {first.revision}, {first.stream} {first.entry_id}".strip()}
        mend = [["labmates", "verify", "--goal-id", goal_id]]
        raise RecordsError(message, facts=facts | {"what": first.what}, mend=mend)
    kept = {name: snapshot.goal[name] for name in KEPT if snapshot.goal.get(name)}
    return GoalRecords(reader.goal_id, snapshot.entries, heads, state, kept)


# The file ----------------------------------------------------------------------------------------


def write_backup(path: Path, goals: Sequence[GoalRecords], *, force: bool = False) -> None:
    """Write goals to a file, whole or not at all; compressed if its name ends with `.gz`.

    Raises:
        UsageError: The file exists and `force` is not given, or its folder does not.
        MachineError: It cannot be written.
    """
    if path.exists() and not force:
        raise _in_the_way(path)
    if not path.absolute().parent.is_dir():
        message = f"there is no folder {path.absolute().parent}"
        raise UsageError(message, tail="Nothing was written.")
    try:
        descriptor, name = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}-")
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                _write_lines(file, goals, packed=path.name.endswith(".gz"))
                file.flush()
                os.fsync(file.fileno())
            if force:
                temporary.replace(path)
            else:
                os.link(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except FileExistsError as error:
        raise _in_the_way(path) from error
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror or error}"
        raise MachineError(message, tail="Nothing was written.") from error


def _in_the_way(path: Path) -> UsageError:
    message = f"{path} exists already"
    return UsageError(
        message, hint="Name another file, or give --force.", tail="It was not changed."
    )


def _write_lines(file: IO[bytes], goals: Sequence[GoalRecords], *, packed: bool) -> None:
    out: Any = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) if packed else file
    digest, count = hashlib.sha256(), 0
    for value in _lines(goals):
        line = f"{canonical(value)}\n".encode()
        digest.update(line)
        out.write(line)
        count += 1
    out.write(f"{canonical({'end': count, 'sha256': digest.hexdigest()})}\n".encode())
    if packed:
        out.close()


def _lines(goals: Sequence[GoalRecords]) -> Iterator[dict[str, Any]]:
    made_at = datetime.now(UTC).isoformat(timespec="seconds")
    yield {"format": FORMAT, "version": VERSION, "made_at": made_at}
    for goal in goals:
        yield {
            "goal": goal.goal_id,
            "events": goal.events,
            "heads": dict(goal.heads),
            "kept": dict(goal.kept),
        }
        for stream, entries in goal.entries.items():
            for entry_id, fields in entries:
                yield {"s": str(stream), "id": entry_id, "f": [list(x) for x in fields.items()]}


@dataclass
class _Part:
    """One goal while its lines are read."""

    goal_id: str
    line: int
    events: int
    heads: dict[str, str]
    kept: dict[str, str]
    entries: dict[Stream, list[Entry]] = field(default_factory=dict)
    places: dict[tuple[str, str], int] = field(default_factory=dict)


def read_backup(path: Path) -> list[GoalRecords]:
    """Read a backup and check all of it: lines, chains, every event, and the digest at its end.

    Raises:
        UsageError: It is none, was cut off or altered; the message names the line.
        RecordsError: Its events contradict themselves; the message names the line.
    """
    parts: list[_Part] = []
    digest, number, ended = hashlib.sha256(), 0, False
    fits = False
    for number, line in enumerate(_read_lines(path), start=1):
        if ended:
            raise _bad(path, number, "there is more behind the end line")
        value = _parsed(path, number, line)
        if number == 1:
            _check_header(path, value)
        elif "end" in value:
            ended = True
            fits = value.get("end") == number - 1 and value.get("sha256") == digest.hexdigest()
        elif "goal" in value:
            parts.append(_part(path, number, value))
        else:
            _take(path, number, value, parts)
        digest.update(line)
    if not ended:
        raise _bad(path, number, "the file ends here, before its end line: it was cut off")
    found = [_checked(path, part) for part in parts]
    if not fits:
        raise _bad(path, number, "the digest does not fit the lines above it: one was altered")
    return found


def _read_lines(path: Path) -> Iterator[bytes]:
    number = 0
    try:
        with path.open("rb") as file:
            packed = path.name.endswith(".gz")
            unpacked: Iterable[bytes] = gzip.GzipFile(fileobj=file) if packed else file
            for line in unpacked:
                number += 1
                yield line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _bad(path, number + 1, f"it cannot be unpacked: {error}") from error
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror or error}"
        raise UsageError(message, tail="Nothing was written.") from error


def _bad(path: Path, number: int, what: str) -> UsageError:
    message = f"{path}, line {number}: {what}"
    return UsageError(message, tail="Nothing was written.")


def _parsed(path: Path, number: int, line: bytes) -> dict[str, Any]:
    if not line.endswith(b"\n"):
        raise _bad(path, number, "the line is cut off")
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _bad(path, number, f"it is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise _bad(path, number, "it is no JSON object")
    return value


def _check_header(path: Path, value: Mapping[str, Any]) -> None:
    if value.get("format") != FORMAT:
        raise _bad(path, 1, "this is no backup of labmates")
    if value.get("version") != VERSION:
        raise _bad(path, 1, f"its format is version {value.get('version')}, this is {VERSION}")


def _is_texts(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())


def _part(path: Path, number: int, value: Mapping[str, Any]) -> _Part:
    goal_id, events = value.get("goal"), value.get("events")
    known = isinstance(goal_id, str) and is_goal_id(goal_id) and isinstance(events, int)
    heads, kept = value.get("heads"), value.get("kept")
    if not (known and _is_texts(heads) and _is_texts(kept) and {*value["kept"]} <= {*KEPT}):
        raise _bad(path, number, "it describes no goal")
    return _Part(str(goal_id), number, int(events or 0), value["heads"], value["kept"])


def _take(path: Path, number: int, value: Mapping[str, Any], parts: Sequence[_Part]) -> None:
    pairs, entry_id, stream = value.get("f"), value.get("id"), value.get("s")
    whole = isinstance(pairs, list) and all(
        isinstance(x, list) and len(x) == 2 and all(isinstance(each, str) for each in x)
        for x in pairs
    )
    known = isinstance(entry_id, str) and stream in set(Stream)
    if not (parts and whole and known and pairs):
        raise _bad(path, number, "it is no event of a goal")
    part = parts[-1]
    part.entries.setdefault(Stream(str(stream)), []).append((str(entry_id), dict(pairs)))
    part.places[str(stream), str(entry_id)] = number


def _checked(path: Path, part: _Part) -> GoalRecords:
    entries = {stream: part.entries.get(stream, []) for stream in Stream}
    held = {"rev": str(sum(map(len, entries.values())))}
    snapshot = Snapshot(part.goal_id, held, entries, part.heads, datetime.now(UTC))
    state, violations, heads = check_records(snapshot)
    if violations:
        raise _contradiction(path, part, violations[0])
    count = len(part.places)
    if count != part.events or heads != part.heads or state.contract is None:
        raise _bad(path, part.line, f"it speaks of {part.events} events, {count} follow")
    return GoalRecords(part.goal_id, entries, heads, state, part.kept)


def _contradiction(path: Path, part: _Part, first: Violation) -> RecordsError:
    number = part.places.get((first.stream, first.entry_id), part.line)
    message = f"{path}, line {number}: {first.what}"
    facts = {"goal": part.goal_id}
    if first.entry_id:
        facts["event"] = f"{first.stream} {first.entry_id}, revision {first.revision}"
    return RecordsError(message, facts=facts, tail="Nothing was written.")


# Into a store ------------------------------------------------------------------------------------


def restore_goals(
    client: "redis.Redis", goals: Iterable[GoalRecords], *, url: str = ""
) -> list[str]:
    """Write goals into a store; gives those that were not there yet.

    Raises:
        RefusedError: A goal is there with other events; nothing at all was written.
        StoreError: The store cannot be written; goals that were done are whole.
    """
    wanted = list(goals)
    ensure_library(client)
    for records in wanted:
        _is_there(client, records, url)
    return [records.goal_id for records in wanted if _restore(client, records, url)]


def _is_there(client: "redis.Redis", records: GoalRecords, url: str) -> bool:
    """Tell whether the goal is there with the same events.

    Raises:
        RefusedError: It is there with others.
    """
    goal_id = records.goal_id
    reader = Reader(client, goal_id, url=url)
    names = key_types(reader)
    if not any(name in {"goal", "heads"} or name.startswith("events:") for name in names):
        return False
    there = {stream: reader.entries(stream) for stream in Stream}
    if all(there[stream] == records.entries[stream] for stream in Stream) and "goal" in names:
        return True
    message = f"the goal {goal_id} is in that store already, with other events"
    raise RefusedError(
        message,
        reason="goal_exists",
        missing="a store without that goal",
        facts={"events": f"{sum(map(len, there.values()))} there, {records.events} to restore"},
        mend=[["labmates", "goal", "archive", f"{goal_id}.jsonl", "--goal-id", goal_id]],
    )


def _restore(client: "redis.Redis", records: GoalRecords, url: str) -> bool:
    goal_id, done = records.goal_id, False
    watched = [keys.goal(goal_id), keys.heads(goal_id)]
    watched += [keys.events(goal_id, stream) for stream in Stream]
    for _ in range(SNAPSHOT_TRIES):
        try:
            with client.pipeline() as batch:
                batch.watch(*watched)  # type: ignore[no-untyped-call]
                if _is_there(client, records, url):
                    break
                reader = Reader(client, goal_id, url=url)
                old, now_ms = key_types(reader), reader.now_ms()
                batch.multi()
                for name in old:  # what a goal of that name has left behind
                    if not name.startswith(("lane:", "wake:")):
                        batch.delete(f"{keys.prefix(goal_id)}:{name}")
                _put(batch, records, now_ms)
                batch.execute()
                done = True
                break
        except WatchError:
            continue
        except redis.RedisError as error:
            raise translate(error, url=url) from error
    with_retries(lambda: client.sadd(keys.GOALS, goal_id), url=url)
    return done


def _put(batch: "Pipeline", records: GoalRecords, now_ms: int) -> None:
    goal_id, state = records.goal_id, records.state
    for stream, entries in records.entries.items():
        for entry_id, fields in entries:
            batch.xadd(keys.events(goal_id, stream), dict[Any, Any](fields), id=entry_id)
    put_state(batch, goal_id, expected_state(state), records.heads)
    lease_ms = int(records.kept.get("lease_ms") or lease_ms_of(state))
    more = dict(records.kept) | {"lease_ms": str(lease_ms), "store": new_incarnation()}
    batch.hset(keys.goal(goal_id), mapping=dict[Any, Any](more))
    claimed = [item.todo_id for item in state.items.values() if item.claimed_by]
    if claimed:
        batch.zadd(keys.leases(goal_id), dict.fromkeys(claimed, now_ms + lease_ms))
    wake_everybody(batch, goal_id)
