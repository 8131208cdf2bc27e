"""The lazy click group over `roles.cli.COMMANDS`."""

import importlib
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import click

from contracts.errors import UsageError
from roles.cli import COMMANDS, FOR_AGENTS, SUMMARIES


class LazyGroup(click.Group):
    """Knows every command by name and summary, and imports only the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Name the commands in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        """Import the command's module."""
        target = COMMANDS.get(cmd_name)
        if target is None:
            return None
        module, _, attribute = target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        if not isinstance(command, click.Command):
            msg = f"{target} is no click command"
            raise TypeError(msg)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        """Write the two groups of commands from the table alone."""
        person = [name for name in COMMANDS if name not in FOR_AGENTS]
        for head, names in (("For the person", person), ("For the agent in a lane", FOR_AGENTS)):
            with formatter.section(head):
                formatter.write_dl([(name, SUMMARIES[name]) for name in names])


def _print_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    try:
        found = version("labmates")
    except PackageNotFoundError:
        found = "unknown (not installed)"
    click.echo(f"labmates {found}")
    ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Print the version.",
)
def labmates() -> None:
    """Research on your own repository by peers on a shared todo store.

    \b
    Examples:
      labmates demo
      labmates status
      labmates quota should-run --agent-id executor-1
    """  # noqa: D301 - click's mark for lines that stay as they are


def invoke(argv: Sequence[str]) -> int:
    """Run one command line through click; gives its exit code.

    Raises:
        UsageError: Wrong usage, in click's words.
        LabmatesError: What the command raised.
        KeyboardInterrupt: It was interrupted.
    """
    try:
        # Not `main`: it turns a closed pipe into exit code 1, which here means "the answer is no".
        with labmates.make_context("labmates", list(argv)) as context:
            result: Any = labmates.invoke(context)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.UsageError as error:
        raise _as_ours(error) from error
    except click.ClickException as error:
        raise UsageError(error.format_message()) from error
    except click.Abort as error:
        raise KeyboardInterrupt from error
    except click.exceptions.Exit as error:
        return error.exit_code
    return result if isinstance(result, int) and not isinstance(result, bool) else 0


def _as_ours(error: click.UsageError) -> UsageError:
    text = error.format_message()
    message = text[:1].lower() + text[1:].rstrip(".")
    path = error.ctx.command_path.split() if error.ctx else ["labmates"]
    facts = {"usage": error.ctx.get_usage().removeprefix("Usage: ")} if error.ctx else {}
    return UsageError(message, facts=facts, mend=[[*path, "--help"]], tail="Nothing was written.")
