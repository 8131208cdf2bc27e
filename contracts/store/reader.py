"""The read side: streams and derived state, with reading commands only."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from contracts.errors import UsageError
from contracts.store import keys
from contracts.store.connect import with_retries
from contracts.store.decision import Reply, as_dict
from contracts.stored import DerivedState
from contracts.words import Stream

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import redis

Entry = tuple[str, dict[str, str]]
"""An entry's id and its text fields."""


class Reader:
    """Reads one goal of one store; never writes (`FCALL_RO` and plain reads)."""

    def __init__(self, client: "redis.Redis", goal_id: str, *, url: str = "") -> None:
        self.client = client
        self.goal_id = goal_id
        self.url = url

    def _read(self, call: Any) -> Any:
        return with_retries(call, url=self.url)

    def entries(
        self, stream: Stream, *, after: str | None = None, count: int | None = None
    ) -> list[Entry]:
        """Read a stream's entries in order, all of them or those after an entry id."""
        start = f"({after}" if after else "-"
        key = keys.events(self.goal_id, stream)
        found = self._read(lambda: self.client.xrange(key, min=start, max="+", count=count))
        return [(str(entry_id), dict(fields)) for entry_id, fields in found]

    def wait_for_entry(self, after: "Mapping[Stream, str]", seconds: float) -> bool:
        """Wait until a stream holds an entry behind `after`; False if none came in time."""
        places: Any = {keys.events(self.goal_id, s): after.get(s, "0-0") for s in Stream}
        block = max(1, round(seconds * 1000))
        return bool(self._read(lambda: self.client.xread(places, count=1, block=block)))

    def heads(self) -> dict[str, str]:
        """Give the stored head (`<seq> <digest>`) of each stream."""
        return dict(self._read(lambda: self.client.hgetall(keys.heads(self.goal_id))))

    def goal(self) -> dict[str, str]:
        """Give the goal's numbers, counters and champion; empty when there is no such goal."""
        return dict(self._read(lambda: self.client.hgetall(keys.goal(self.goal_id))))

    def require_goal(self) -> dict[str, str]:
        """Give the goal's hash.

        Raises:
            UsageError: The store has no such goal; the message lists those it has.
        """
        found = self.goal()
        if not found:
            known = ", ".join(sorted(goal_ids(self.client))) or "none"
            message = f"there is no goal {self.goal_id!r} in this store"
            raise UsageError(message, facts={"goals": known})
        return found

    def item(self, todo_id: str) -> dict[str, str]:
        """Give a todo's fields; empty when there is none."""
        return dict(self._read(lambda: self.client.hgetall(keys.item(self.goal_id, todo_id))))

    def agent_ids(self) -> list[str]:
        """List the agents that were ever on the roster, sorted."""
        return sorted(self._read(lambda: self.client.smembers(keys.agents(self.goal_id))))

    def agent(self, agent_id: str) -> dict[str, str]:
        """Give an agent's roster entry, incarnation and claim."""
        return dict(self._read(lambda: self.client.hgetall(keys.agent(self.goal_id, agent_id))))

    def lane(self, agent_id: str) -> dict[str, str]:
        """Give what a lane says it does now; may be old, may be empty."""
        return dict(self._read(lambda: self.client.hgetall(keys.lane(self.goal_id, agent_id))))

    def leases(self) -> dict[str, int]:
        """Give the end of each lease, in ms of the store's clock."""
        found = self._read(
            lambda: self.client.zrange(keys.leases(self.goal_id), 0, -1, withscores=True)
        )
        return {str(todo): int(score) for todo, score in found}

    def ready(self, name: str, *, count: int = 100) -> list[tuple[str, float]]:
        """List the first todos of a ready set with their ranks."""
        key = keys.ready(self.goal_id, name)
        found = self._read(lambda: self.client.zrange(key, 0, count - 1, withscores=True))
        return [(str(todo), float(score)) for todo, score in found]

    def open_gates(self) -> list[str]:
        """List the open gates, oldest first."""
        return list(self._read(lambda: self.client.zrange(keys.gates(self.goal_id), 0, -1)))

    def gate(self, gate_id: str) -> dict[str, str]:
        """Give a gate's fields; empty when there is none."""
        return dict(self._read(lambda: self.client.hgetall(keys.gate(self.goal_id, gate_id))))

    def derived(
        self,
        *,
        todos: "Iterable[str]",
        agents: "Iterable[str]",
        gates: "Iterable[str]",
        classes: "Iterable[str]",
    ) -> DerivedState | None:
        """Read derived state in one batch; None if the goal was written meanwhile.

        Bytes that are no text are escaped.
        """
        goal_id = self.goal_id
        hashes = {
            "item": {each: keys.item(goal_id, each) for each in todos},
            "agent": {each: keys.agent(goal_id, each) for each in agents},
            "gate": {each: keys.gate(goal_id, each) for each in gates},
            "ready": {each: keys.ready(goal_id, each) for each in classes},
        }
        calls: list[tuple[str, ...]] = [("HGETALL", keys.goal(goal_id))]
        for kind in ("item", "agent", "gate"):
            calls += [("HGETALL", key) for key in hashes[kind].values()]
        calls += [("ZRANGE", key, "0", "-1", "WITHSCORES") for key in hashes["ready"].values()]
        calls += [
            ("ZRANGE", keys.gates(goal_id), "0", "-1", "WITHSCORES"),
            ("SMEMBERS", keys.agents(goal_id)),
            ("HGETALL", keys.prefix(goal_id) + ":hyps"),
            ("HGETALL", keys.prefix(goal_id) + ":texts"),
            ("HGETALL", keys.goal(goal_id)),
        ]

        def ask() -> Any:
            batch = self.client.pipeline(transaction=False)
            for call in calls:
                # redis-py's own switch to hand out bytes
                batch.execute_command(*call, NEVER_DECODE=True)  # type: ignore[no-untyped-call]
            return batch.execute(raise_on_error=False)

        answers = iter(self._read(ask))
        before = _fields(next(answers))
        items = {each: _fields(next(answers)) for each in hashes["item"]}
        members = {each: _fields(next(answers)) for each in hashes["agent"]}
        found_gates = {each: _fields(next(answers)) for each in hashes["gate"]}
        ready = {each: _scores(next(answers)) for each in hashes["ready"]}
        open_gates, roster = _scores(next(answers)), next(answers)
        hypotheses, texts = _fields(next(answers)), _fields(next(answers))
        goal = _fields(next(answers))
        if goal.get("rev") != before.get("rev"):
            return None
        return DerivedState(
            goal=goal,
            items=items,
            agents=members,
            gates=found_gates,
            roster=frozenset(_text(each) for each in _listed(roster)),
            hypotheses=hypotheses,
            texts=texts,
            ready=ready,
            open_gates=open_gates,
        )

    def should_run(self, agent_id: str, *, role: str = "", brief: bool = False) -> Reply:
        """Ask for the decision of `quota should-run`, without effect."""
        values: Mapping[str, str] = {
            "agent": agent_id,
            "role": role,
            "inc": "",
            "brief": "1" if brief else "",
        }
        flat = [part for pair in values.items() for part in pair]
        name = "lm_should_run_v1"

        def ask() -> Any:
            declared = keys.declared("should_run", self.goal_id, agent_id=agent_id)
            return self.client.fcall_ro(name, len(declared), *declared, *flat)

        answer = self._read(ask)
        if isinstance(answer, list) and answer and answer[0] == "refused":
            self.require_goal()
        return as_dict(answer)

    def now(self) -> datetime:
        """Give the store's clock as a UTC time."""
        return datetime.fromtimestamp(self.now_ms() / 1000, tz=UTC)

    def now_ms(self) -> int:
        """Give the store's clock in ms."""
        seconds, micros = self._read(self.client.time)
        return int(seconds) * 1000 + int(micros) // 1000


def _text(value: object) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def _listed(answer: object) -> "Iterable[object]":
    return answer if isinstance(answer, list | set | tuple) else ()


def _fields(answer: object) -> dict[str, str]:
    pairs = answer.items() if isinstance(answer, dict) else ()
    return {_text(name): _text(value) for name, value in pairs}


def _scores(answer: object) -> dict[str, float]:
    """Read members with scores, which redis-py may have paired already."""
    flat: list[Any] = []
    for each in _listed(answer):
        flat += each if isinstance(each, list | tuple) else [each]
    return {
        _text(member): float(score) for member, score in zip(flat[::2], flat[1::2], strict=True)
    }


def goal_ids(client: "redis.Redis", *, url: str = "") -> list[str]:
    """List the goals of the store, sorted."""
    return sorted(str(goal) for goal in with_retries(lambda: client.smembers(keys.GOALS), url=url))
