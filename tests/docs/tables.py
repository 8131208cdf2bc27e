"""The tables of the docs that are made from code; `python -m tests.docs.tables` writes them."""

import ast
import enum
import importlib
import re
from collections.abc import Callable
from pathlib import Path

from contracts import errors
from contracts.store.acl import USERS, user_name
from contracts.transitions import GUARDS, TABLE, mermaid
from tests.architecture.tree import ROOT, listed, parsed, python_files
from tests.integration.store.test_acl import ATTEMPTS, OWN, STREAMS

CASE_FILES = {
    "docs/field-cases.md": "field",
    "docs/research-cases.md": "research",
    "docs/peer-cases.md": "peer",
}
CASE_ROW = re.compile(r"^\| (?P<number>\d+) \| (?P<what>.*) \| (?P<state>[^|]*) \|$", re.MULTILINE)


def error_classes() -> list[type[errors.LabmatesError]]:
    """List the tree of errors, each class before those below it."""
    found: list[type[errors.LabmatesError]] = []

    def visit(cls: type[errors.LabmatesError]) -> None:
        found.append(cls)
        for below in cls.__subclasses__():
            if below.__module__ == errors.__name__:
                visit(below)

    visit(errors.LabmatesError)
    return found


def errors_table() -> str:
    """Render one row per error class: name, word, exit code, first sentence of its docstring."""
    rows = ["| error | code | exit | meaning |", "|---|---|---|---|"]
    for cls in error_classes():
        depth = len(cls.__mro__) - len(errors.LabmatesError.__mro__)
        meaning = (cls.__doc__ or "").split("\n", maxsplit=1)[0]
        name = "&nbsp;" * 2 * depth + f"`{cls.__name__}`"
        rows.append(f"| {name} | `{cls.code}` | {cls.exit_code} | {meaning} |")
    return "\n".join(rows)


def word_enums() -> list[type[enum.StrEnum]]:
    """List the closed lists of words that records use, by name."""
    found: dict[str, type[enum.StrEnum]] = {}
    for path in python_files("contracts"):
        if "StrEnum" not in (ROOT / path).read_text(encoding="utf-8"):
            continue
        module = importlib.import_module(".".join(path.with_suffix("").parts))
        for value in vars(module).values():
            own = isinstance(value, type) and value.__module__ == module.__name__
            if own and issubclass(value, enum.StrEnum):
                found[value.__name__] = value
    return [found[name] for name in sorted(found)]


def enums_table() -> str:
    """Render one row per closed list of words: its name, its words, what it is."""
    rows = ["| list | words | what they are |", "|---|---|---|"]
    for cls in word_enums():
        words = ", ".join(f"`{member.value}`" for member in cls)
        meaning = (cls.__doc__ or "").split("\n", maxsplit=1)[0]
        rows.append(f"| `{cls.__name__}` | {words} | {meaning} |")
    return "\n".join(rows)


def authority_table() -> str:
    """Render what each user of the server may try: the attempts of the tests, and their ends."""
    users = [user_name(who) for who in USERS]
    rows = ["| attempt | " + " | ".join(f"`{user}`" for user in users) + " |"]
    rows.append("|---" * (len(users) + 1) + "|")
    for stream in STREAMS:
        ends = ["done" if stream in OWN[who] else "refused" for who in USERS]
        rows.append(f"| append to the stream `{stream}` | " + " | ".join(ends) + " |")
    for name in ATTEMPTS:
        what = name if name[0].islower() else f"`{name}`"
        rows.append(f"| {what} | " + " | ".join("refused" for _ in USERS) + " |")
    return "\n".join(rows)


def transitions_table() -> str:
    """Render the rows of the state machine: from, to, who, what must stand in the call, what holds."""
    rows = ["| from | to | written by | in the same call | needs |", "|---|---|---|---|---|"]
    for rule in TABLE:
        who = ", then ".join(rule.signers) if rule.signers else " or ".join(rule.writers)
        signed = "signed by " if rule.signers else ""
        with_it = ", ".join(f"`{each}`" for each in rule.records) or "-"
        needs = "; ".join(GUARDS[each] for each in rule.guards) or "-"
        rows.append(f"| `{rule.source}` | `{rule.target}` | {signed}{who} | {with_it} | {needs} |")
    return "\n".join(rows)


def transitions_diagram() -> str:
    """Render the diagram of the state machine."""
    return f"```mermaid\n{mermaid()}```"


BLOCKS: dict[tuple[str, str], Callable[[], str]] = {
    ("docs/reference/authority.md", "authority"): authority_table,
    ("docs/reference/errors.md", "errors"): errors_table,
    ("docs/reference/glossary.md", "enums"): enums_table,
    ("docs/reference/state-machine.md", "diagram"): transitions_diagram,
    ("docs/reference/state-machine.md", "transitions"): transitions_table,
}


def with_block(text: str, name: str, body: str) -> str:
    """Put `body` between the marks of the block `name`; a missing mark is an error."""
    start, end = f"<!-- generated: {name} -->\n", "<!-- end -->"
    head, found, rest = text.partition(start)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"no block {name}")
    return f"{head}{start}{body}\n{end}{tail}"


def case_tests() -> dict[str, dict[int, list[str]]]:
    """Find the tests named after a case: kind, number, names in order."""
    found: dict[str, dict[int, list[str]]] = {kind: {} for kind in CASE_FILES.values()}
    for path in listed():
        if path.parts[0] != "tests" or path.suffix != ".py":
            continue
        for node in ast.walk(parsed(path)):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            named = re.match(r"test_(field|research|peer)_case_(\d+)_", node.name)
            if named:
                found[named[1]].setdefault(int(named[2]), []).append(node.name)
    return {
        kind: {number: sorted(names) for number, names in cases.items()}
        for kind, cases in found.items()
    }


def with_cases(text: str, tests: dict[int, list[str]]) -> str:
    """Write the tests' names into a table of cases; rows without one keep their word."""

    def row(match: re.Match[str]) -> str:
        names = tests.get(int(match["number"]), [])
        state = match["state"].strip()
        if names:
            state = "<br>".join(f"`{name}`" for name in names)
        elif state.startswith("`test_"):
            state = "not yet"
        return f"| {match['number']} | {match['what']} | {state} |"

    return CASE_ROW.sub(row, text)


def rendered(file: str) -> str:
    """Give a generated file as it should be, from the code and from its own hand-kept parts."""
    text = (ROOT / file).read_text(encoding="utf-8")
    if file in CASE_FILES:
        return with_cases(text, case_tests()[CASE_FILES[file]])
    for (block_file, name), render in BLOCKS.items():
        if block_file == file:
            text = with_block(text, name, render())
    return text


def generated_files() -> list[str]:
    """Name the files that hold something generated."""
    return sorted({*CASE_FILES, *(file for file, _ in BLOCKS)})


def main() -> None:
    """Write every generated table again."""
    for file in generated_files():
        Path(ROOT / file).write_text(rendered(file), encoding="utf-8")


if __name__ == "__main__":
    main()
