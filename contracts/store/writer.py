"""The write side: one typed method per store function, each with an operation id.

A call is sent again only with the same operation id, so that it is applied once and its first
answer is given again. A refusal of the store becomes `RefusedError`, and nothing was written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import redis

from contracts.ids import new_incarnation, new_operation_id
from contracts.store import keys
from contracts.store.connect import BLOCK_LIMIT_S, translate, with_retries
from contracts.store.decision import Reply, as_dict
from contracts.store.library import source
from contracts.store.refusals import no_permission, refusal

Body = str
TypedBody = tuple[str, Body]
"""An event type and its body as canonical JSON."""


@dataclass(frozen=True, slots=True)
class Held:
    """A claim as its holder knows it; every write under it carries these.

    Attributes:
        store: The incarnation of the goal in its store; empty is not compared.
    """

    goal_id: str
    agent_id: str
    incarnation: str
    role: str
    todo_id: str
    fence: int
    version: int
    store: str = ""

    def fields(self) -> dict[str, str]:
        """Give the fields that the store compares."""
        return {
            "agent": self.agent_id,
            "inc": self.incarnation,
            "role": self.role,
            "todo": self.todo_id,
            "fence": str(self.fence),
            "version": str(self.version),
            "store": self.store,
        }


class Writer:
    """Calls the function library of one store for one goal.

    Safe for threads as far as the client is; one operation of an agent is under way at a time.
    """

    def __init__(
        self,
        client: "redis.Redis",
        goal_id: str,
        *,
        url: str = "",
        by_role: "Mapping[str, redis.Redis] | None" = None,
    ) -> None:
        """Keep the clients: `client` for calls in no role, `by_role` where a role has its own."""
        self.client = client
        self.goal_id = goal_id
        self.url = url
        self.by_role = dict(by_role or {})

    def call(self, name: str, values: Mapping[str, object]) -> Any:
        """Call one function; retried on connection faults under one operation id.

        Raises:
            RefusedError: The store refused, and nothing was written.
            StoreForeignError: The store has another version of the function library by now.
            StoreError: The store could not be reached, or refuses writes.
        """
        flat = ["lib", source()[1], "op", new_operation_id()]
        for key, value in values.items():
            flat += [key, str(value)]

        role = str(values.get("role") or "")
        client = self.by_role.get(role, self.client)
        declared = keys.declared(
            name,
            self.goal_id,
            agent_id=str(values.get("agent") or ""),
            todo_id=str(values.get("todo") or ""),
            role=role,
        )

        def send() -> Any:
            try:
                return client.fcall(f"lm_{name}_v1", len(declared), *declared, *flat)
            except redis.exceptions.NoPermissionError as error:
                raise no_permission(name, role, str(error)) from error

        answer = with_retries(send, url=self.url)
        if isinstance(answer, list) and answer and answer[0] == "refused":
            raise refusal(name, answer, values)
        return answer

    def blocking_pop(self, names: Sequence[str], seconds: float) -> bool:
        """Take one wake token of these lists, waiting up to `seconds`; True if there was one.

        The wait always ends: 0 means for ever to a server, and so does less than 1 ms to an old one.
        """
        finite = min(max(seconds, 0.01), BLOCK_LIMIT_S)
        try:
            found = self.client.blpop(list(names), timeout=finite)
        except redis.RedisError as error:
            raise translate(error, url=self.url) from error
        return found is not None

    # The goal and its roster ---------------------------------------------------------------

    def create(
        self,
        *,
        operator: str,
        contract_hash: str,
        numbers: Mapping[str, str],
        bodies: Sequence[Body],
    ) -> None:
        """Make the goal with its proposed contract (`goal_created`, `contract_proposed`)."""
        values: dict[str, object] = {
            "agent": operator,
            "contract_hash": contract_hash,
            "born": new_incarnation(),
            "fields": len(numbers),
            "body1": bodies[0],
            "body2": bodies[1],
        }
        for position, (name, value) in enumerate(numbers.items(), start=1):
            values[f"field{position}"] = name
            values[f"value{position}"] = value
        self.call("create", values)
        with_retries(lambda: self.client.sadd(keys.GOALS, self.goal_id), url=self.url)

    def approve(self, *, operator: str, contract_hash: str, body: Body) -> None:
        """Freeze the proposed contract; opens the baseline and the propose todo."""
        self.call("approve", {"agent": operator, "contract_hash": contract_hash, "body1": body})

    def register(
        self,
        *,
        operator: str,
        agent_id: str,
        roles: Sequence[str],
        body: Body,
        declared: Body = "",
    ) -> None:
        """Put an agent on the roster; the same registration again changes nothing.

        Args:
            operator: The person.
            agent_id: The agent.
            roles: Its roles out of the four; none takes it off the roster.
            body: The registration.
            declared: The declaration of a role beyond the four, as canonical JSON.
        """
        values = {"agent": operator, "member": agent_id, "roles": ",".join(roles), "body1": body}
        self.call("register", {**values, "declared": declared})

    def add_todo(self, *, operator: str, text_digest: str, title: str, body: Body) -> str:
        """Add a person's idea; gives its todo.

        Raises:
            RefusedError: The text is there already (`duplicate`), the goal takes no attempts
                any more, or its contract is not approved.
        """
        values = {"agent": operator, "text": text_digest, "title": title, "body1": body}
        return str(self.call("todo_add", values)[1])

    def pause(self, *, operator: str, value: bool, note: str, body: Body) -> None:
        """Stop or allow new claims of the goal."""
        values = {"agent": operator, "value": "1" if value else "0", "note": note, "body1": body}
        self.call("pause", values)

    def open_gate(
        self, *, operator: str, todo_id: str, kind: str, body: Body, role: str = ""
    ) -> str:
        """Open a gate on an item; gives its id.

        Args:
            operator: Who asks: a person, or with `role` an agent that is curator or evaluator.
            todo_id: The item that waits from now on.
            kind: What is asked.
            body: The gate's record.
            role: The agent's role, in whose stream the gate is opened.
        """
        values = {"agent": operator, "role": role, "todo": todo_id, "kind": kind, "body1": body}
        return str(self.call("gate_open", values)[1])

    def decide_gate(
        self, *, operator: str, gate_id: str, verdict: str, touched: int, body: Body
    ) -> int:
        """Decide a gate as it was shown (`touched` is the item's revision then)."""
        values = {
            "agent": operator,
            "gate": gate_id,
            "verdict": verdict,
            "touched": touched,
            "body1": body,
        }
        return int(self.call("gate_decide", values)[1])

    # Incarnations and claims -----------------------------------------------------------------

    def enlist(
        self,
        *,
        agent_id: str,
        role: str,
        incarnation: Mapping[str, str],
        dead: str,
        died: str = "",
    ) -> tuple[str, str]:
        """Start an incarnation of an agent.

        Gives the todo it already holds, or nothing, and the store's incarnation.

        Args:
            agent_id: Who.
            role: The role this worker serves.
            incarnation: `inc`, `host`, `pid` and `start` of this process.
            dead: Id of the incarnation that is known to be dead, or nothing.
            died: What is known of how it ended, such as its exit code.
        """
        values = {"agent": agent_id, "role": role, "dead": dead, "died": died, **incarnation}
        answer = self.call("enlist", values)
        return str(answer[1]), str(answer[2])

    def leave(self, *, agent_id: str, incarnation: str, role: str = "") -> None:
        """End an incarnation; a claim it still holds stays as it is."""
        self.call("leave", {"agent": agent_id, "inc": incarnation, "role": role})

    def claim(
        self, *, agent_id: str, incarnation: str, role: str = "", todo_id: str = "", store: str = ""
    ) -> Reply:
        """Decide and claim in one step; gives the decision. `store` is as in `Held`."""
        values = {"agent": agent_id, "inc": incarnation, "role": role, "todo": todo_id}
        values["store"] = store
        return as_dict(self.call("claim", values))

    def renew(
        self,
        *,
        agent_id: str,
        incarnation: str,
        held: Held | None,
        store: str = "",
        role: str = "",
    ) -> int:
        """Renew the incarnation and its claim; gives the new end of the lease in ms.

        Args:
            agent_id: Who.
            incarnation: Of this process.
            held: The claim, if there is one.
            store: As in `Held`.
            role: A role of the agent, in whose right the call is made; a claim has its own.
        """
        values: dict[str, object] = {"agent": agent_id, "inc": incarnation, "store": store}
        values["role"] = role
        if held is not None:
            values |= held.fields()
        return int(self.call("renew", values)[1])

    def release(self, held: Held, reason: str, *, detail: str = "") -> None:
        """Give a claim back before its step; an attempt under way is refused.

        Args:
            held: The claim.
            reason: One word; anything but a choice counts as a recovery of the item.
            detail: What a person should know of it, should the item come to wait for one.
        """
        self.call("release", {**held.fields(), "reason": reason, "detail": detail})

    # Work --------------------------------------------------------------------------------------

    def propose(
        self,
        held: Held,
        *,
        body: Body,
        text_digest: str,
        rank: float,
        rank_reason: str,
        title: str,
        family: str,
        cursor: str,
        signature: Body = "",
    ) -> tuple[str, str]:
        """Add a hypothesis with its todo; gives their ids. Ends the claim.

        Raises:
            RefusedError: `duplicate`, with the equal hypothesis as `missing`; the claim stands.
        """
        values = {
            **held.fields(),
            "records": 1,
            "type1": "hypothesis_added",
            "body1": body,
            "body2": signature,
            "text": text_digest,
            "rank": repr(rank),
            "rank_reason": rank_reason,
            "title": title,
            "family": family,
            "cursor": cursor,
        }
        answer = self.call("propose", values)
        return str(answer[1]), str(answer[2])

    def close_source(self, held: Held, *, cursor: str) -> None:
        """Say that the source has nothing more; ends the claim."""
        self.call("close_source", {**held.fields(), "cursor": cursor})

    def advance(
        self,
        held: Held,
        to: str,
        *,
        records: Sequence[TypedBody] = (),
        note: Body = "{}",
        **facts: str,
    ) -> Reply:
        """Move an item along a row of one role, its records in the same step."""
        values = {**held.fields(), "to": to, "note": note, **_numbered(records), **facts}
        answer = self.call("advance", values)
        return as_dict(answer[2:]) if answer[0] == "ok" else as_dict(answer)

    def record(self, held: Held, kind: str, body: Body, **facts: str) -> None:
        """Write a record of the evaluator that moves nothing."""
        self.call("record", {**held.fields(), **_numbered([(kind, body)]), **facts})

    def sign(self, held: Held, to: str, *, signature: Body, decided: Body | None = None) -> None:
        """Sign a transition of two roles; the second signature makes it."""
        records = [("decided", decided)] if decided else []
        values = {**held.fields(), "to": to, "signature": signature, **_numbered(records)}
        self.call("sign", values)

    def review(
        self, *, agent_id: str, hypothesis_id: str, decision: int, body: Body
    ) -> tuple[int, bool]:
        """Review a terminal decision; gives its revision, and False for one that was there."""
        values = {"agent": agent_id, "hyp": hypothesis_id, "decision": decision, "body1": body}
        answer = self.call("review", values)
        return int(answer[1]), answer[0] == "ok"

    def assess(self, *, agent_id: str, hypothesis_id: str, body: Body) -> tuple[int, bool]:
        """Assess a hypothesis; gives the revision, and False for one that was there."""
        values = {"agent": agent_id, "hyp": hypothesis_id, "body1": body}
        answer = self.call("assess", values)
        return int(answer[1]), answer[0] == "ok"

    def decline(self, held: Held, *, signature: Body) -> None:
        """Disagree with the first signature; the item goes back to the first role."""
        self.call("decline", {**held.fields(), "body1": signature})

    def spend(self, held: Held, *, micro_usd: int, body: Body) -> None:
        """Settle the cost of the attempt under the claim, once."""
        self.call("spend", {**held.fields(), "cost": micro_usd, "spent_body": body})

    def reject_stale(self, held: Held, *, body: Body) -> None:
        """Put a result that came under an old fence on record, once; it changes nothing else."""
        self.call("stale", {**held.fields(), "body1": body})


def _numbered(records: Sequence[TypedBody]) -> dict[str, str]:
    values = {"records": str(len(records))}
    for position, (kind, body) in enumerate(records, start=1):
        values[f"type{position}"] = kind
        values[f"body{position}"] = body
    return values
