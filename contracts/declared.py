"""A role beyond the four: data on the roster, never authority (R18 of the role state machine)."""

from typing import Literal

from pydantic import Field, model_validator

from contracts.models import Number, Record
from contracts.words import CAPABILITY_TOKENS, Role


class DeclaredRole(Record):
    """A role beyond the four: it reads, and writes no event."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")
    capability_token: str = Field(min_length=1, max_length=60)
    primary_job: str = Field(min_length=1, max_length=500)
    reads: tuple[Literal["graph", "frontier", "gates"], ...] = Field(min_length=1)
    command: tuple[str, ...] = Field(min_length=1)
    may_write: tuple[str, ...] = Field(default=(), max_length=0)
    must_not: tuple[str, ...] = ()
    timeout_s: Number = Field(default=60.0, gt=0, le=3600)

    @model_validator(mode="after")
    def _beyond_the_four(self) -> "DeclaredRole":
        taken = {str(role) for role in Role} | {"operator", "quota"}
        if self.name in taken or self.capability_token in set(CAPABILITY_TOKENS.values()):
            msg = f"{self.name} ({self.capability_token}) is one of the four roles or writers"
            raise ValueError(msg)
        return self
