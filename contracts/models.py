"""The base of every record: closed, frozen, versioned, UTC.

Shapes follow `design/records.md`; `schema_version` is the record's name with its version.
"""

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, FiniteFloat


def _utc(value: datetime) -> datetime:
    if value.tzinfo is None:
        msg = "a time needs a zone; UTC is meant"
        raise ValueError(msg)
    return value.astimezone(UTC)


def _not_bool(value: object) -> object:
    if isinstance(value, bool):
        msg = "true and false are no numbers"
        raise ValueError(msg)  # noqa: TRY004 - pydantic turns ValueError into a validation error
    return value


UtcTime = Annotated[datetime, AfterValidator(_utc)]
Number = Annotated[FiniteFloat, BeforeValidator(_not_bool)]
"""A finite number; booleans, NaN and infinities are refused."""


class Record(BaseModel):
    """A closed, frozen record."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=False)

    def to_json_dict(self) -> dict[str, Any]:
        """Give the record as plain JSON values, without fields that are None."""
        return self.model_dump(mode="json", exclude_none=True)
