"""Goals: born of one approved contract, found again by their id.

The store holds the contract; `LABMATES_HOME/goals/<goal_id>/` holds what concerns this machine:
`goal.json` with the path of the repository, and a copy of `labmates.toml` as it was approved.
"""

import json
import os
import pwd
import re
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from contracts.canonical import canonical
from contracts.contract import ResearchContract, goal_limits
from contracts.errors import PreconditionError, RecordsError, RefusedError, UsageError
from contracts.ids import is_goal_id
from contracts.records import Approval
from contracts.store.home import labmates_home
from contracts.store.reader import Reader
from contracts.store.writer import Writer
from contracts.words import Stream

CONTRACT_FILE = "labmates.toml"
_LEASE_S = 30.0


def create_goal(
    writer: Writer,
    contract: ResearchContract,
    operator: str,
    repository: Path,
    *,
    contract_text: str = "",
) -> bool:
    """Make the goal of an approved contract, and approve it.

    A half that an earlier call left is completed, so calling again after a crash is right.

    Args:
        writer: Of the contract's own goal id.
        contract: With its base commit.
        operator: Who approves, such as `operator:ops`.
        repository: The root of the work tree.
        contract_text: `labmates.toml` as it was read; copied beside `goal.json`.

    Returns:
        False if this contract had been approved before.

    Raises:
        RefusedError: The goal id belongs to another contract.
    """
    digest = contract.contract_hash()
    goal_id = contract.context.goal_id
    proposed = {"contract": contract.to_json_dict(), "contract_hash": digest}
    try:
        writer.create(
            operator=operator,
            contract_hash=digest,
            numbers=goal_numbers(contract),
            bodies=["{}", canonical(proposed)],
        )
    except RefusedError as refused:
        if refused.reason != "goal_exists":
            raise
        _require_same(writer, digest)
    _keep(goal_id, repository, contract_text)
    approval = Approval(contract_hash=digest, uncalibrated=True)
    body = canonical({"approval": approval.to_json_dict()})
    try:
        writer.approve(operator=operator, contract_hash=digest, body=body)
    except RefusedError as refused:
        if refused.reason == "already_approved":
            return False
        raise
    return True


def goal_numbers(contract: ResearchContract) -> dict[str, str]:
    """Give the numbers that a goal is born with: the contract's limits and this machine's lease."""
    found = goal_limits(contract) | {"lease_ms": str(round(1000 * _lease_s()))}
    if contract.evaluation.target is None:
        found["target_met"] = "1"
    return found


def contract_of(reader: Reader) -> ResearchContract:
    """Give the goal's contract, as the records have it.

    Raises:
        UsageError: There is no such goal.
        RecordsError: The recorded contract is not the one whose hash the goal holds.
    """
    expected = reader.require_goal().get("contract_hash", "")
    for entry_id, fields in reader.entries(Stream.CURATOR, count=16):
        if fields.get("type") != "contract_proposed":
            continue
        try:
            body = json.loads(fields.get("body", ""))
            contract = ResearchContract.model_validate_json(json.dumps(body["contract"]))
            named = body["contract_hash"]
        except (ValueError, KeyError, TypeError) as error:
            message = f"the contract of {reader.goal_id} cannot be read"
            raise RecordsError(message, facts=_event(entry_id, _first(error))) from error
        if not contract.contract_hash() == named == expected:
            message = f"the contract of {reader.goal_id} is not the one whose hash the goal holds"
            raise RecordsError(message, facts=_event(entry_id, f"goal {expected}, event {named}"))
        return contract
    message = f"the records of {reader.goal_id} hold no contract"
    raise RecordsError(message, facts={"stream": Stream.CURATOR.value})


def repository_of(goal_id: str) -> Path:
    """Give the repository that a goal works on, on this machine.

    Raises:
        PreconditionError: This machine does not know it, or it is gone.
    """
    file = goal_folder(goal_id) / "goal.json"
    mend = [["labmates", "plan"]]
    try:
        path = Path(json.loads(file.read_text(encoding="utf-8"))["repository"])
    except FileNotFoundError as error:
        message = f"this machine does not know the repository of {goal_id}"
        hint = "run labmates approve in that repository, with the same LABMATES_HOME"
        raise PreconditionError(message, facts={"file": str(file)}, mend=mend, hint=hint) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = f"{file} cannot be read"
        raise PreconditionError(message, facts={"reason": str(error)}, mend=mend) from error
    if not path.is_dir():
        message = f"the repository of {goal_id} is gone: {path}"
        raise PreconditionError(message, facts={"file": str(file)})
    return path


def goal_folder(goal_id: str) -> Path:
    """Give the folder of what this machine keeps of a goal; it may not exist yet."""
    if not is_goal_id(goal_id):
        message = f"{goal_id!r} cannot name a goal"
        raise UsageError(message, hint="use lower-case letters, digits, - and _")
    return labmates_home() / "goals" / goal_id


def operator_name() -> str:
    """Name the person at this machine, as records do: `operator:` and the login name."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = str(os.getuid())
    return "operator:" + (re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-") or "person")


def approval_of(reader: Reader) -> tuple[str, datetime] | None:
    """Tell who approved the goal's contract, and when; None where nobody has."""
    for _, fields in reader.entries(Stream.OPERATOR):
        if fields.get("type") == "approved":
            when = datetime.fromtimestamp(int(fields["at"]) / 1000, tz=UTC)
            return fields.get("agent", ""), when
    return None


def _require_same(writer: Writer, digest: str) -> None:
    reader = Reader(writer.client, writer.goal_id, url=writer.url)
    found = reader.require_goal().get("contract_hash", "")
    if found == digest:
        return
    goal = writer.goal_id
    message = f"{goal} is the goal of another contract; a changed contract is a new goal"
    raise RefusedError(
        message,
        reason="goal_exists",
        missing="a new goal id",
        facts={"approved": _approved(reader, found), "now": digest[:8]},
        mend=[
            ["labmates", "plan", "--goal-id", f"{goal}-2"],
            ["labmates", "status", "--goal-id", goal],
        ],
    )


def _approved(reader: Reader, digest: str) -> str:
    known = approval_of(reader)
    if known is None:
        return f"{digest[:8]}  (proposed, not approved)"
    who, when = known
    return f"{digest[:8]}  by {who.removeprefix('operator:')}, {when.astimezone():%d %b %H:%M:%S}"


def _keep(goal_id: str, repository: Path, contract_text: str) -> None:
    folder = goal_folder(goal_id)
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "goal.json", canonical({"repository": str(repository.resolve())}) + "\n")
    if contract_text:
        _write(folder / CONTRACT_FILE, contract_text)


def _write(path: Path, text: str) -> None:
    """Write a file in one step: a reader sees the old text or the new one."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _lease_s() -> float:
    text = os.environ.get("LABMATES_LEASE_S", "")
    if not text:
        return _LEASE_S
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.05 <= seconds <= 3600:
        message = f"LABMATES_LEASE_S must be seconds from 0.05 to 3600, not {text!r}"
        raise UsageError(message)
    return seconds


def _event(entry_id: str, why: str) -> dict[str, str]:
    return {"stream": Stream.CURATOR.value, "event": entry_id, "why": why}


def _first(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(error)
