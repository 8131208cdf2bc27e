"""The champion's branch: a copy of what the `decided` event says, moved afterwards by anybody."""

from roles.goal.context import GoalContext


def champion_ref(goal_id: str) -> str:
    """Name the branch that follows the champion."""
    return f"refs/heads/labmates/{goal_id}/champion"


def move_champion_ref(context: GoalContext) -> bool:
    """Move the branch to the champion of now, where it is behind; True if it moved.

    Safe to race: the old value is compared, and whoever comes later finds it moved already.
    """
    behind = champion_ref_behind(context)
    if behind is None:
        return False
    now, commit = behind
    return context.git.update_ref(champion_ref(context.goal_id), commit, now)


def champion_ref_behind(context: GoalContext) -> tuple[str, str] | None:
    """Give where the branch is (empty: nowhere) and the champion's commit; None if they agree."""
    goal = context.reader.goal()
    commit = goal.get("champion_commit")
    if not commit or not goal.get("promotions"):
        return None
    ref = champion_ref(context.goal_id)
    now = context.git.refs(ref).get(ref, "")
    return None if now == commit or not context.git.has_commit(commit) else (now, commit)
