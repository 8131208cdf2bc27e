"""From `labmates.toml` and a commit to the contract that can be approved."""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pydantic import ValidationError

from contracts.contract import ResearchContract
from contracts.errors import PreconditionError, RefusedError, UsageError
from contracts.ids import is_goal_id
from contracts.store.reader import Reader
from roles.drivers.base import DRIVERS
from roles.goal.contract_toml import FILE, ContractText, line_of, parse_contract
from roles.goal.goals import approval_of, contract_of
from roles.goal.sources import QueueEntry, changes_folder, parse_queue
from roles.measuring.command_line import argv_of, require_program, script_of
from roles.workspace.git import Git, TreeEntry
from roles.workspace.objects import scope_digest
from roles.workspace.repository import open_repository, require_clean, shown
from roles.workspace.scope import command_files, matches, name_fault

COMMANDS = ("dev", "holdout", "guard")


@dataclass(frozen=True)
class PlannedContract:
    """A contract as it would be approved now.

    Attributes:
        contract: Normalized: defaults filled in, what is always protected added.
        contract_hash: 64 hex digits.
        repository: Root of the work tree.
        text: `labmates.toml` as it was read.
        warnings: What was changed to fit, or will surprise; one sentence each.
        editable_files: Files of the base commit that attempts may change.
        protected_files: Files of the base commit that they must not.
        queue: The hypotheses of the base commit, in the order of lines.
    """

    contract: ResearchContract
    contract_hash: str
    repository: Path
    text: str
    warnings: tuple[str, ...]
    editable_files: tuple[str, ...]
    protected_files: tuple[str, ...]
    queue: tuple[QueueEntry, ...]


def read_contract(
    repository: Path, *, base: str | None = None, goal_id: str | None = None
) -> PlannedContract:
    """Read the contract of the repository that holds this folder; writes nothing.

    Args:
        repository: The folder.
        base: The commit to compare with; None: HEAD, and then everything must be committed.
        goal_id: None: from the name of the repository's folder.

    Raises:
        UsageError: The file or the queue does not validate; the line is named.
        PreconditionError: The repository or the machine lacks something.
    """
    git = open_repository(repository)
    path = git.repo / FILE
    if path.is_symlink():
        message = f"{shown(path)} is a link; the contract must be a file of the repository"
        raise PreconditionError(message, hint=f"copy what it points to, and commit {FILE}")
    try:
        raw = path.read_bytes()
    except FileNotFoundError as error:
        message = f"there is no {FILE} in {shown(git.repo)}"
        hint = "write one; docs/how-to/own-repository.md says how"
        raise PreconditionError(message, hint=hint) from error
    except OSError as error:
        message = f"{shown(path)} cannot be read: {error.strerror}"
        raise PreconditionError(message) from error
    found = parse_contract(raw)
    if base is None:
        _require_committed(git, raw)
        require_clean(git)
    commit = git.resolve(base or "HEAD")
    tree = git.list_tree(commit)
    paths = [entry.path for entry in tree]
    _check_commands(found, paths, tree)
    protected = _protected(found, paths)
    editable = tuple(found.parts["context"]["editable"])
    editable_files = tuple(p for p in paths if matches(p, editable) and not matches(p, protected))
    protected_files = tuple(path for path in paths if matches(path, protected))
    warnings = found.warnings + _check_scopes(found, paths, protected)
    contract = _normalized(
        found,
        goal_id=goal_id or goal_id_of(git.repo),
        protected=protected,
        base_commit=commit,
        digest=scope_digest(tree, protected),
    )
    queue = _queue(found, git, contract, paths)
    return PlannedContract(
        contract=contract,
        contract_hash=contract.contract_hash(),
        repository=git.repo,
        text=found.text,
        warnings=warnings,
        editable_files=editable_files,
        protected_files=protected_files,
        queue=queue,
    )


def goal_id_of(repository: Path) -> str:
    """Make a goal id of the name of a folder."""
    kept = "".join(c if c.isascii() and c.isalnum() else "-" for c in repository.name.lower())
    name = "-".join(part for part in kept.split("-") if part)[:63].rstrip("-")
    return name or "goal"


def require_unchanged(reader: Reader, repository: Path) -> PlannedContract:
    """Refuse to go on when the file is no longer the contract that was approved.

    Compares with the approved base commit, so commits of the person's own change nothing.

    Raises:
        RefusedError: The approval is void; the first differing key and its line are named.
        UsageError: There is no such goal, or the file no longer validates.
    """
    approved = contract_of(reader)
    goal_id = approved.context.goal_id
    now = read_contract(repository, base=approved.base_commit, goal_id=goal_id)
    void_if_changed(reader, approved, now)
    return now


def void_if_changed(reader: Reader, approved: ResearchContract, now: PlannedContract) -> None:
    """Compare the approved contract with the one of the file.

    Raises:
        RefusedError: They differ.
    """
    before = approved.contract_hash()
    if now.contract_hash == before:
        return
    goal_id = approved.context.goal_id
    known = approval_of(reader)
    facts = {"approved": before[:8], "now": now.contract_hash[:8]}
    if known is not None:
        who, when = known[0].removeprefix("operator:"), known[1].astimezone()
        facts["approved"] += f"  by {who}, {when:%d %b %H:%M:%S}"
    place, what = _first_difference(approved, now.contract)
    facts["now"] += f"  differs in {what}"
    if line := line_of(now.text, place):
        facts["now"] += f"\n{FILE} line {line}"
    message = f"{FILE} is no longer the contract that was approved"
    raise RefusedError(
        message,
        reason="contract_changed",
        missing=f"the contract {before[:8]}",
        facts=facts,
        mend=[["git", "checkout", FILE], ["labmates", "plan", "--goal-id", f"{goal_id}-2"]],
        hint=f"the first to go on with {goal_id} as approved, the second to make it a new goal",
        tail="Nothing was started.",
    )


def _first_difference(
    before: ResearchContract, now: ResearchContract
) -> tuple[tuple[str, ...], str]:
    old, new = _flat(before.model_dump(mode="json")), _flat(now.model_dump(mode="json"))
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    if not names:
        return (), "nothing that can be shown"
    first = names[0]
    if first in {("protected_scope_sha256",), ("base_commit",)}:
        return (), ".".join(first)
    more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
    return first, f"{'.'.join(first)}: {old.get(first)} -> {new.get(first)}{more}"


def _flat(value: object, place: tuple[str, ...] = ()) -> dict[tuple[str, ...], object]:
    if not isinstance(value, dict):
        return {place: value}
    found: dict[tuple[str, ...], object] = {}
    for key, below in value.items():
        found |= _flat(below, (*place, key))
    return found


def _require_committed(git: Git, raw: bytes) -> None:
    """Refuse a contract file that the commit does not hold as it was read.

    Contents are compared, since index flags can hide a change from `git status`.
    """
    head = git.head()
    tracked = any(entry.path == FILE for entry in git.list_tree(head))
    if tracked and git.show(head, FILE).splitlines() == raw.splitlines():
        return
    state = "has changes that are not committed" if tracked else "is not committed"
    message = f"{FILE} {state}"
    raise PreconditionError(
        message,
        facts={"why": "the contract that is approved must be part of the commit it names"},
        mend=[["git", "add", FILE], ["git", "commit", "-m", "Research contract", "--", FILE]],
    )


def _protected(found: ContractText, paths: list[str]) -> tuple[str, ...]:
    """Give the person's globs, and after them what is always protected and not yet covered."""
    globs = list(found.parts["context"].get("protected", ()))
    evaluation = found.parts["evaluation"]
    queue = found.parts["strategy"].get("queue", "hypotheses.jsonl")
    always: set[str] = {FILE, queue, changes_folder(queue) + "/"}
    for name in COMMANDS:
        always |= command_files(evaluation.get(name) or "", paths)
    for path in sorted(always):
        probe = path + "x" if path.endswith("/") else path
        if not matches(probe, globs):
            globs.append(path.replace("[", "[[]"))
    return tuple(globs)


def _check_commands(found: ContractText, paths: list[str], tree: list[TreeEntry]) -> None:
    evaluation = found.parts["evaluation"]
    surroundings = found.parts["environment"]
    python = surroundings.get("python", "python3")
    executable = {entry.path for entry in tree if entry.mode == "100755"}
    for name in COMMANDS:
        command = evaluation.get(name)
        if not command:
            continue
        place = ("evaluation", name)
        try:
            argv = argv_of(command, python=python)
        except UsageError as error:
            found.refuse(place, error.message, hint=error.hint)
        script = script_of(argv)
        if script is not None and script not in paths:
            what = f"evaluation.{name} runs {script}, which is not in the base commit"
            found.refuse(place, what, hint="name a file that is committed, from the root")
        if script is not None and "/" in argv[0] and script not in executable:
            what = f"evaluation.{name} runs {script}, which git does not hold as executable"
            found.refuse(place, what, hint=f"git update-index --chmod=+x {script}")
        require_program(argv, what=f"evaluation.{name}")
    driver = found.parts["strategy"].get("driver", "files")
    if driver not in DRIVERS:
        what = f"strategy.driver must be one of {', '.join(sorted(DRIVERS))}, not {driver!r}"
        found.refuse(("strategy", "driver"), what)
    if driver == "command" and not found.parts["strategy"].get("driver_command", "").strip():
        what = "strategy.driver is 'command', but strategy.driver_command is empty"
        found.refuse(("strategy", "driver"), what)


def _check_scopes(
    found: ContractText, paths: list[str], protected: tuple[str, ...]
) -> tuple[str, ...]:
    context = found.parts["context"]
    warnings = []
    for key in ("editable", "protected"):
        for glob in context.get(key, ()):
            place = ("context", key)
            if not glob.strip() or name_fault(glob.removesuffix("/")):
                found.refuse(place, f"context.{key}: {glob!r} is no path inside the repository")
            if not any(matches(path, [glob]) for path in paths):
                what = f"context.{key}: {glob!r} matches no file of the base commit"
                found.refuse(place, what, hint="globs match whole paths from the root, with case")
    for glob in context["editable"]:
        mine = [path for path in paths if matches(path, [glob])]
        both = [path for path in mine if matches(path, protected)]
        if len(both) == len(mine):
            what = f"context.editable: all that {glob!r} matches is protected too: {both[0]}"
            found.refuse(("context", "editable"), what, hint=_why_protected(found, both[0], paths))
        elif both:
            line = found.line_of("context", "editable")
            few = ", ".join(both[:3]) + (" ..." if len(both) > 3 else "")
            warnings.append(
                f"{FILE} line {line}: {glob!r} also matches protected files, "
                f"which stay protected: {few}"
            )
    return tuple(warnings)


def _why_protected(found: ContractText, path: str, paths: list[str]) -> str:
    for name in COMMANDS:
        if path in command_files(found.parts["evaluation"].get(name) or "", paths):
            return f"evaluation.{name} names it, and what a command names is protected"
    if matches(path, found.parts["context"].get("protected", ())):
        return "context.protected matches it"
    return "the contract, the queue and its changes are always protected"


def _queue(
    found: ContractText, git: Git, contract: ResearchContract, paths: list[str]
) -> tuple[QueueEntry, ...]:
    file = contract.strategy.queue
    if file not in paths:
        what = f"strategy.queue names {file}, which is not in the base commit"
        found.refuse(("strategy", "queue"), what, hint=f"write and commit {PurePosixPath(file)}")
    raw = git.show(contract.base_commit, file)
    entries = parse_queue(raw, file=file, driver=contract.strategy.driver)
    if not any(entry.feasible for entry in entries):
        message = f"{file} holds no feasible hypothesis, so nothing can be tried"
        raise UsageError(message, facts={"file": file})
    return entries


def _normalized(
    found: ContractText, *, goal_id: str, protected: tuple[str, ...], base_commit: str, digest: str
) -> ResearchContract:
    if not is_goal_id(goal_id):
        message = f"{goal_id!r} cannot name a goal"
        raise UsageError(message, hint="use lower-case letters, digits, - and _")
    context = found.parts["context"] | {"goal_id": goal_id, "protected": protected}
    values = {**found.parts, "context": context, "base_commit": base_commit}
    try:
        return ResearchContract.model_validate(values | {"protected_scope_sha256": digest})
    except ValidationError as error:  # the parts were checked before; this is about the rest
        message = f"the contract does not validate: {error.errors()[0]['msg']}"
        raise UsageError(message) from error
