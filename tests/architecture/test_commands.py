"""The literal table of commands: every entry resolves, has help, and is documented."""

import re

import click

from tests.architecture.commands import commands, leaves, resolve, table
from tests.architecture.tree import ROOMS, ROOT


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


def test_the_check_of_help_sees_a_missing_example() -> None:
    assert has_example("Say hello.\n\nExamples:\n  labmates hello --loud\n")
    assert not has_example("Say hello, as labmates does.")


def test_the_list_of_commands_goes_down_into_groups() -> None:
    inner = click.Command("b")
    group = click.Group("a", commands={"b": inner, "c": click.Group("c", commands={"b": inner})})
    assert set(leaves("a", group)) == {"a b", "a c b"}
