"""The driver `patch`: applies the prepared diff `change.patch`, whole or not at all."""

from roles.drivers.base import Brief, DriverOutcome, DriverStatus
from roles.workspace.git import Git


def run(brief: Brief) -> DriverOutcome:
    """Apply `change_dir/change.patch`; one that does not fit the base is `base_conflict`.

    Git refuses paths outside the worktree and paths behind links.
    """
    patch = None if brief.change_dir is None else (brief.change_dir / "change.patch").resolve()
    if patch is None or not patch.is_file():
        return DriverOutcome(
            status=DriverStatus.DRIVER_ERROR, summary=f"there is no prepared patch: {patch}"
        )
    if not patch.read_bytes().strip():
        return DriverOutcome(status=DriverStatus.NO_CHANGE, summary="the prepared patch is empty")
    done = Git(brief.worktree).run("apply", "--whitespace=nowarn", "--", str(patch), calm=True)
    if done.returncode == 0:
        return DriverOutcome(status=DriverStatus.CHANGED, summary="applied change.patch")
    lines = done.stderr.decode(errors="replace").strip().splitlines() or ["git apply failed"]
    does_not_fit = done.returncode == 1
    status = DriverStatus.BASE_CONFLICT if does_not_fit else DriverStatus.DRIVER_ERROR
    return DriverOutcome(status=status, summary=lines[-1].removeprefix("error: "))
