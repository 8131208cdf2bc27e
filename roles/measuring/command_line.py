"""Command lines of a contract: one program with its arguments, never read by a shell.

A shell hides the exit code of all but the last program of a pipeline, and starts programs that
nobody named; who needs one writes it out: `bash -o pipefail -c "..."`.
"""

import re
import shlex
import shutil
from pathlib import Path, PurePosixPath

from contracts.errors import PreconditionError, UsageError
from roles.processes.process import base_env

_OPERATORS = re.compile(r"[|&;<>()]+")
_INTERPRETERS = re.compile(r"(python[0-9.]*|bash|sh|dash|zsh|node|ruby|perl|Rscript|julia)")
_INLINE = re.compile(r"-[A-Za-z]*[cme]")
_WITH_VALUE = {"-W", "-X", "-o", "-O"}


def argv_of(command: str, *, python: str) -> list[str]:
    """Split a command into its argument list; a leading `python` becomes the contract's.

    Raises:
        UsageError: It is empty, has an open quote, or an operator that only a shell knows.
    """
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = list(lexer)
        argv = shlex.split(command)
    except ValueError as error:
        message = f"the command {command!r} has an open quote or a lone backslash"
        raise UsageError(message) from error
    if not argv or "\0" in command:
        message = f"{command!r} is no command"
        raise UsageError(message)
    if odd := [word for word in words if _OPERATORS.fullmatch(word)]:
        message = f"the command {command!r} needs a shell for {odd[0]!r}, and none reads it"
        hint = 'write the shell out: bash -o pipefail -c "..."'
        raise UsageError(message, hint=hint)
    if argv[0] in {"python", "python3"}:
        argv[0] = python
    return argv


def script_of(argv: list[str]) -> str | None:
    """Give the file of the repository that the command runs, or None where it names none."""
    program = argv[0]
    if "/" in program:
        return None if program.startswith("/") else str(PurePosixPath(program))
    if not _INTERPRETERS.fullmatch(program):
        return None
    words = iter(argv[1:])
    for word in words:
        if _INLINE.fullmatch(word):
            return None
        if word in _WITH_VALUE:
            next(words, None)
        elif not word.startswith("-"):
            return None if word.startswith("/") else str(PurePosixPath(word))
    return None


def require_program(argv: list[str], *, what: str) -> None:
    """Refuse a command whose program is not on this machine; paths in the tree pass.

    Args:
        argv: See `argv_of`.
        what: Which command it is, such as `evaluation.dev`.

    Raises:
        PreconditionError: There is no such program on the PATH that commands get.
    """
    program = argv[0]
    path = base_env(home=Path("/nonexistent"), tmp=Path("/nonexistent"))["PATH"]
    if "/" in program and not program.startswith("/"):
        return
    if shutil.which(program, path=path) is None:
        message = f"the program {program!r} of {what} is not on this machine"
        raise PreconditionError(
            message,
            facts={"command": shlex.join(argv), "PATH": path},
            hint="install it, or name it by its whole path (environment.python for python)",
        )
