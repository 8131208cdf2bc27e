"""A gate as a person is shown it, and the hash that binds the decision to that."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from contracts.canonical import canonical, sha256_hex
from contracts.errors import RefusedError, UsageError
from contracts.store.reader import Reader
from contracts.words import State, Stream

HASH_LENGTH = 8


@dataclass(frozen=True, slots=True)
class ShownGate:
    """A gate with what it is about; `hash` is over everything that could change under it.

    Attributes:
        touched: Revision of the last record that concerns the item.
        open_for_s: Seconds since it was opened, by the store's clock.
    """

    gate_id: str
    fields: dict[str, str]
    body: dict[str, Any]
    item: dict[str, str]
    touched: int
    hash: str
    open_for_s: int

    @property
    def is_open(self) -> bool:
        """Tell whether nobody has decided it yet."""
        return self.fields.get("status") == "open"


def gate_hash(gate_id: str, item: Mapping[str, str]) -> str:
    """Hash what a person decides on: gate, last touch, version, state, commit (8 hex digits)."""
    facts = {
        "gate": gate_id,
        "touched": item.get("touched", ""),
        "version": item.get("version", ""),
        "state": item.get("state", ""),
        "commit": item.get("commit", ""),
    }
    return sha256_hex(canonical(facts))[:HASH_LENGTH]


def shown_gate(reader: Reader, gate_id: str) -> ShownGate:
    """Read a gate and its item.

    Raises:
        UsageError: There is no such gate; the message lists those that are open.
    """
    fields = reader.gate(gate_id)
    if not fields:
        known = ", ".join(reader.open_gates()) or "none"
        message = f"there is no gate {gate_id!r} in {reader.goal_id}"
        mend = [["labmates", "gate", "list"]]
        raise UsageError(message, facts={"open": known}, mend=mend)
    todo = fields.get("todo", "")
    item = reader.item(todo)
    try:
        body = json.loads(fields.get("body") or "{}").get("gate", {})
    except (ValueError, AttributeError):
        body = {}
    opened = int(fields.get("opened_at") or 0)
    return ShownGate(
        gate_id=gate_id,
        fields=fields,
        body=body if isinstance(body, dict) else {},
        item={"id": todo, **item},
        touched=int(item.get("touched") or 0),
        hash=gate_hash(gate_id, item),
        open_for_s=max(0, reader.now_ms() - opened) // 1000 if opened else 0,
    )


def require_current(reader: Reader, gate: ShownGate, shown: str) -> None:
    """Refuse a decision that was made on something else than what is there now.

    Raises:
        UsageError: `shown` is no hash.
        RefusedError: The gate is decided, or it has changed since it was shown.
    """
    require_open(reader, gate)
    if len(shown) < HASH_LENGTH or any(char not in "0123456789abcdef" for char in shown.lower()):
        message = f"this is no hash of a gate: {shown!r}"
        mend = [["labmates", "gate", "show", gate.gate_id]]
        raise UsageError(message, mend=mend, hint="`gate show` prints it (8 hex digits).")
    if shown.lower()[:HASH_LENGTH] != gate.hash:
        raise changed(gate, shown, _revision_of(reader, gate, shown.lower()[:HASH_LENGTH]))


def require_open(reader: Reader, gate: ShownGate) -> None:
    """Refuse a second decision; the refusal says who was first, and when by the store's clock.

    Raises:
        RefusedError: The gate is decided already.
    """
    if gate.is_open:
        return
    status, by = gate.fields.get("status", ""), gate.fields.get("by", "")
    message = f"{gate.gate_id} is {status} already, by {by}"
    raise RefusedError(
        message,
        reason="already_decided",
        missing="an open gate",
        facts=_decided(reader, gate.gate_id),
        mend=[["labmates", "gate", "list"]],
    )


def _decided(reader: Reader, gate_id: str) -> dict[str, str]:
    """Give when a gate was decided, from the event: its entry id begins with the store's time."""
    for entry_id, fields in reader.entries(Stream.OPERATOR):
        if fields.get("type") == "gate_decided" and fields.get("gate") == gate_id:
            at = datetime.fromtimestamp(int(entry_id.partition("-")[0]) / 1000, tz=UTC)
            when = at.astimezone().isoformat(" ", timespec="seconds")
            return {"decided": f"rev {fields.get('rev', '')}, {when}"}
    return {}


def overtaken(reader: Reader, gate: ShownGate, refused: RefusedError) -> RefusedError:
    """Say what another did between our reading of a gate and the store's refusal of the decision.

    Raises:
        RefusedError: It was decided.
    """
    again = shown_gate(reader, gate.gate_id)
    require_open(reader, again)
    return refused if again.hash == gate.hash else changed(again, gate.hash, str(gate.touched))


def changed(gate: ShownGate, shown: str, old_revision: str) -> RefusedError:
    """Build the refusal of a decision on something that moved."""
    message = f"{gate.gate_id} has changed since {shown}"
    return RefusedError(
        message,
        reason="changed_since_shown",
        missing=f"the hash {gate.hash} of what is there now",
        facts={"shown": f"{shown}, rev {old_revision}", "now": f"{gate.hash}, rev {gate.touched}"},
        mend=[["labmates", "gate", "show", gate.gate_id]],
    )


def _revision_of(reader: Reader, gate: ShownGate, shown: str) -> str:
    """Find the revision a hash was made at, by trying what the item was at each of its events."""
    todo, version = gate.item["id"], int(gate.item.get("version") or 0)
    touched = {
        fields["rev"]
        for stream in Stream
        for _, fields in reader.entries(stream)
        if fields.get("todo") == todo and "rev" in fields
    }
    for revision in sorted(touched, key=int, reverse=True):
        for older in range(version, 0, -1):
            for state in (*State, "open", "closed"):
                for commit in {"", gate.item.get("commit", "")}:
                    was = {"touched": revision, "version": str(older), "state": str(state)}
                    if gate_hash(gate.gate_id, was | {"commit": commit}) == shown:
                        return revision
    return "unknown"
