"""Every error a user or an agent can meet, with its exit code.

The first fork says whose fault it is: a `ContractError` breaks the contract and is never retried,
a `WorldError` is the world's and may be. Retry policy reads the class, never the message.

    LabmatesError                 70  a fault of ours
      ContractError                   the request breaks the contract
        UsageError                 2  wrong usage, or input that does not validate
        RefusedError               3  identity, role, claim, fence or gate does not allow it
        PreconditionError          5  the repository or the machine lacks something
        RecordsError               6  the records contradict themselves
      WorldError                      the world failed
        StoreError                 4  the store cannot be reached or refuses writes
          StoreUnreachableError    4  no answer
          StoreReadOnlyError       4  it answers, but takes no writes
          StoreForeignError        4  it holds keys of another program, or lacks functions
        DriverError                5  a driver could not do its work
        MachineError               5  the machine failed, not the candidate

Only the command line turns an error into text (`roles.cli`); everything else carries data.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

Argv = Sequence[str]


class LabmatesError(Exception):
    """A fault of ours; the base of every error that labmates raises.

    Attributes:
        message: One sentence that names the thing.
        facts: Label and text pairs, shown in two columns in this order.
        mend: Commands that mend it, as argument lists, best first.
        hint: One sentence for a mend that is no command.
        tail: The last line, usually what was not done ("Nothing was written.").
    """

    exit_code: ClassVar[int] = 70
    code: ClassVar[str] = "fault"

    def __init__(
        self,
        message: str,
        *,
        facts: Mapping[str, str] | None = None,
        mend: Sequence[Argv] = (),
        hint: str = "",
        tail: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.facts = dict(facts or {})
        self.mend = [list(argv) for argv in mend]
        self.hint = hint
        self.tail = tail


class ContractError(LabmatesError):
    """The request breaks the contract; asking again will not help."""

    exit_code = 2
    code = "contract"


class UsageError(ContractError):
    """Wrong usage, or input that does not validate; nothing was written."""

    exit_code = 2
    code = "usage"


class RefusedError(ContractError):
    """Identity, role, claim, fence or gate does not allow it; nothing was written.

    Attributes:
        reason: The store's word for the refusal, such as `stale_fence`.
        missing: The first thing that is missing.
    """

    exit_code = 3
    code = "refused"

    def __init__(
        self,
        message: str,
        *,
        reason: str = "refused",
        missing: str = "",
        facts: Mapping[str, str] | None = None,
        mend: Sequence[Argv] = (),
        hint: str = "",
        tail: str = "Nothing was written.",
    ) -> None:
        super().__init__(message, facts=facts, mend=mend, hint=hint, tail=tail)
        self.reason = reason
        self.missing = missing


class PreconditionError(ContractError):
    """The repository or the machine lacks something that must be there first."""

    exit_code = 5
    code = "precondition"


class RecordsError(ContractError):
    """The records contradict themselves; each event is named."""

    exit_code = 6
    code = "records"


class WorldError(LabmatesError):
    """The world failed; the same request may succeed later."""

    exit_code = 70
    code = "world"


class StoreError(WorldError):
    """The store cannot be reached, or refuses writes; what was written before stands."""

    exit_code = 4
    code = "store"


class StoreUnreachableError(StoreError):
    """The store gives no answer."""

    code = "store_unreachable"


class StoreReadOnlyError(StoreError):
    """The store answers but takes no writes (read-only, full, or a replica)."""

    code = "store_read_only"


class StoreForeignError(StoreError):
    """The store holds another program's keys under our names, or another function library."""

    code = "store_foreign"


class DriverError(WorldError):
    """A driver could not do its work."""

    exit_code = 5
    code = "driver"


class MachineError(WorldError):
    """The machine failed, not the candidate: no score comes of it."""

    exit_code = 5
    code = "machine"
