"""The driver `command`: any program that edits files, without a shell.

It runs in the worktree; `LABMATES_BRIEF` names a JSON file that says what is asked.
"""

import json
import shlex
import tempfile
from pathlib import Path

from roles.drivers.base import Brief, DriverOutcome, DriverStatus, file_stamps, status_of
from roles.processes.process import base_env
from roles.processes.process import run as run_process

_SUMMARY_CHARS = 200


def run(brief: Brief) -> DriverOutcome:
    """Run `brief.command`; its exit code 0 and a changed file make it `changed`."""
    try:
        argv = shlex.split(brief.command)
    except ValueError as error:
        return _error(f"the command cannot be read: {error}")
    if not argv or argv[0].startswith("-"):
        return _error(f"{brief.command!r} is no command")
    before = file_stamps(brief.worktree)
    with tempfile.TemporaryDirectory(prefix="labmates-turn-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        home, tmp = folder / "home", folder / "tmp"
        home.mkdir()
        tmp.mkdir()
        paper = folder / "brief.json"
        paper.write_text(json.dumps(_paper(brief), ensure_ascii=False, indent=1), encoding="utf-8")
        env = base_env({**brief.env, "LABMATES_BRIEF": str(paper)}, home=home, tmp=tmp)
        outcome = run_process(
            argv,
            cwd=brief.worktree,
            env=env,
            timeout_s=brief.timeout_s,
            silence_s=brief.silence_s,
            log_path=brief.log_path,
            stop=brief.stop,
        )
    has_changed = file_stamps(brief.worktree) != before
    status = status_of(outcome, has_changed=has_changed)
    lines = (outcome.stdout.strip() or outcome.stderr.strip()).splitlines()
    summary = lines[-1][:_SUMMARY_CHARS] if lines else f"{argv[0]}: {status}"
    return DriverOutcome(status=status, summary=summary, process=outcome)


def _paper(brief: Brief) -> dict[str, object]:
    return {
        "goal_id": brief.goal_id,
        "hypothesis_id": brief.hypothesis_id,
        "attempt": brief.attempt,
        "title": brief.title,
        "hypothesis": brief.hypothesis,
        "worktree": str(brief.worktree),
        "editable": list(brief.editable),
        "protected": list(brief.protected),
        "timeout_s": brief.timeout_s,
        "feedback": brief.feedback or None,
        "change_dir": None if brief.change_dir is None else str(brief.change_dir),
    }


def _error(summary: str) -> DriverOutcome:
    return DriverOutcome(status=DriverStatus.DRIVER_ERROR, summary=summary)
