"""`labmates schema [NAME]`: the committed JSON Schemas; no model is imported."""

import json
import sys
from importlib.resources import files

import click

from contracts.errors import UsageError
from roles.options import json_option, print_document


@click.command("schema")
@click.argument("name", required=False, default="")
@json_option
def schema(name: str, *, as_json: bool) -> None:
    """List the records, or print the JSON Schema of one (`events`: of all events).

    \b
    Examples:
      labmates schema
      labmates schema research_hypothesis_v0
    """  # noqa: D301 - click's mark for lines that stay as they are
    folder = files("contracts").joinpath("schema")
    known = sorted(
        entry.name.removesuffix(".json")
        for entry in folder.iterdir()
        if entry.name.endswith(".json")
    )
    if not name:
        if as_json:
            print_document({"schemas": known})
        else:
            click.echo("\n".join(known))
        return
    if name not in known:
        message = f"there is no record {name!r}"
        close = [each for each in known if name.removesuffix("_v0") in each]
        mend = [["labmates", "schema", each] for each in close[:3]] or [["labmates", "schema"]]
        raise UsageError(message, facts={"records": ", ".join(known)}, mend=mend)
    text = folder.joinpath(f"{name}.json").read_text(encoding="utf-8")
    if as_json:
        print_document(json.loads(text))
    else:
        sys.stdout.write(text)
