"""The literal table of commands: every entry resolves, has help, and is documented."""

import ast
import re

import click

from tests.architecture.commands import commands, leaves, resolve, table
from tests.architecture.tree import ROOMS, ROOT, parsed, python_files


def documented() -> set[str]:
    page = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")
    return set(re.findall(r"^\| `labmates ([^`]+)` \|", page, re.MULTILINE))


def has_example(help_text: str) -> bool:
    """An example is a line of the help that starts with the program itself."""
    return re.search(r"^\s*(\$ )?labmates \S", help_text, re.MULTILINE) is not None


def test_every_entry_of_the_table_resolves_in_a_room() -> None:
    assert len(table()) > 10
    for name, target in table().items():
        assert re.fullmatch(r"[a-z]+(\.[a-z_]+)+:[a-z_]+", target), f"{name}: {target}"
        assert target.split(".", maxsplit=1)[0] in ROOMS
        assert isinstance(resolve(target), click.Command), f"{name}: {target}"


def test_every_command_has_help_with_an_example() -> None:
    without = [path for path, command in commands().items() if not has_example(command.help or "")]
    assert without == []


def test_every_option_of_a_command_has_help() -> None:
    without = [
        f"{path} {parameter.name}"
        for path, command in commands().items()
        for parameter in command.params
        if isinstance(parameter, click.Option) and not parameter.help and not parameter.hidden
    ]
    assert without == []


def test_every_command_is_documented_and_every_documented_one_exists() -> None:
    assert documented() == set(commands())


def mends(tree: ast.AST) -> list[list[str]]:
    """Find argument lists of our own program, up to the first word that is not constant."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.List, ast.Tuple)):
            words = []
            for item in node.elts:
                if not (isinstance(item, ast.Constant) and isinstance(item.value, str)):
                    break
                words.append(item.value)
            if words[:1] == ["labmates"] and len(words) > 1:
                found.append(words)
    return found


def test_every_command_that_a_message_offers_exists() -> None:
    known = set(commands())
    unknown = [
        f"{path}: {' '.join(words)}"
        for path in python_files(*ROOMS)
        for words in mends(parsed(path))
        if words[1] not in known and " ".join(words[1:3]) not in known
    ]
    assert unknown == []


def test_the_check_of_messages_sees_an_argument_list() -> None:
    tree = ast.parse(
        'mend=[["labmates", "gate", "show", gate], ["git", "stash"]]; x = ["labmates"]'
    )
    assert mends(tree) == [["labmates", "gate", "show"]]


def test_the_check_of_help_sees_a_missing_example() -> None:
    assert has_example("Say hello.\n\nExamples:\n  labmates hello --loud\n")
    assert not has_example("Say hello, as labmates does.")


def test_the_list_of_commands_goes_down_into_groups() -> None:
    inner = click.Command("b")
    group = click.Group("a", commands={"b": inner, "c": click.Group("c", commands={"b": inner})})
    assert set(leaves("a", group)) == {"a b", "a c b"}
