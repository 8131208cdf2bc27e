"""The commands of the program, as its literal table and click know them."""

import importlib
from functools import cache

import click


def resolve(target: str) -> object:
    """Import what `"module:attribute"` names."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


@cache
def table() -> dict[str, str]:
    """Give the literal table of `roles.cli`."""
    found = resolve("roles.cli:COMMANDS")
    assert isinstance(found, dict)
    return found


def leaves(path: str, command: click.Command) -> dict[str, click.Command]:
    """List the commands that do something, at and below `path`."""
    if not isinstance(command, click.Group):
        return {path: command}
    context = click.Context(command, info_name=path)
    found: dict[str, click.Command] = {}
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None, f"{path} {name}"
        found |= leaves(f"{path} {name}", below)
    return found


@cache
def commands() -> dict[str, click.Command]:
    """List every command that does something, by its words: `demo`, `quota should-run`."""
    found: dict[str, click.Command] = {}
    for path, target in table().items():
        command = resolve(target)
        assert isinstance(command, click.Command), f"{path}: {target} is no click command"
        found |= leaves(path, command)
    return found
