"""Ids: their forms, and the checks that keep them safe in keys, refs and file names."""

import re
import secrets
import time
from typing import Annotated

from pydantic import StringConstraints

GOAL_ID_PATTERN = r"^[a-z0-9][a-z0-9_-]{0,62}$"
AGENT_ID_PATTERN = r"^[a-z0-9][a-z0-9_-]{0,62}$"
HYPOTHESIS_ID_PATTERN = r"^hyp_[0-9]{3,9}$"

GoalIdField = Annotated[str, StringConstraints(pattern=GOAL_ID_PATTERN)]
AgentIdField = Annotated[str, StringConstraints(pattern=AGENT_ID_PATTERN)]


def is_goal_id(text: str) -> bool:
    """Tell whether `text` may name a goal (and so a key, a ref and a folder)."""
    return re.fullmatch(GOAL_ID_PATTERN[1:-1], text) is not None


def is_agent_id(text: str) -> bool:
    """Tell whether `text` may name an agent."""
    return re.fullmatch(AGENT_ID_PATTERN[1:-1], text) is not None


def new_operation_id() -> str:
    """Make an operation id: unique per call, sortable by time, never reused by a retry."""
    return f"{time.time_ns():x}-{secrets.token_hex(6)}"


def new_incarnation() -> str:
    """Make the id of a goal's incarnation in its store: a restored goal is not the one it was."""
    return secrets.token_hex(8)
