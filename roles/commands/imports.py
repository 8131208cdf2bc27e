"""`labmates import FILE`."""

from pathlib import Path
from typing import Any

import click

from contracts.errors import UsageError
from contracts.imports import Imported, parse_import
from contracts.text import facts, inert, table
from roles.options import json_option, print_document

LIMIT_BYTES = 64 * 1024 * 1024
LATER = "Nothing was written: this version reads and checks such records, and keeps none."


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--allow-https", is_flag=True, help="Take https addresses as references.")
@json_option
def import_records(*, file: Path, allow_https: bool, as_json: bool) -> None:
    """Read records of another implementation, and name each field that has no place here.

    Checks every value and writes nothing: keeping imported records in a goal is not built yet.

    \b
    Example:
      labmates import decentralized-auto-research-knn.public.json
    """  # noqa: D301 - click's mark for lines that stay as they are
    found = parse_import(read_text(file), allow_https=allow_https)
    if as_json:
        print_document(import_document(found))
        return
    click.echo("\n".join(import_text(found, file)))


def read_text(file: Path) -> str:
    """Read a file of at most 64 MiB.

    Raises:
        UsageError: It is not there, too large, or no UTF-8.
    """
    try:
        with file.open("rb") as stream:
            raw = stream.read(LIMIT_BYTES + 1)
        if len(raw) <= LIMIT_BYTES:
            return raw.decode("utf-8-sig")
    except OSError as error:
        message = f"{file} cannot be read: {error.strerror}"
        raise UsageError(message) from error
    except UnicodeDecodeError as error:
        message = f"{file} is not UTF-8 (byte {error.start})"
        raise UsageError(message) from error
    message = f"{file} is larger than {LIMIT_BYTES // 1024 // 1024} MiB"
    raise UsageError(message)


def import_document(found: Imported) -> dict[str, Any]:
    """Give what was read as one JSON document."""
    return {
        "schema_version": found.schema_version,
        "goal_id": found.goal_id or None,
        "counts": found.counts(),
        "records": [
            {
                "record": record.record,
                "pointer": record.pointer,
                "fields": dict(record.fields),
                "lacks": list(record.lacks),
            }
            for record in found.mapped
        ],
        "unplaced": [{"pointer": one.pointer, "kind": one.kind} for one in found.unplaced],
        "written": False,
    }


def import_text(found: Imported, file: Path) -> list[str]:
    """Give what was read as people read it: what, how much of it, and what has no place."""
    lacks: dict[str, set[str]] = {}
    for record in found.mapped:
        lacks.setdefault(record.record, set()).update(record.lacks)
    rows = [
        [name, str(count), ", ".join(sorted(lacks[name])) or "nothing"]
        for name, count in found.counts().items()
    ]
    head = [
        ("File", inert(file)),
        ("Kind", inert(found.schema_version)),
        ("Goal", inert(found.goal_id or None)),
    ]
    lines = [f"{len(found.mapped)} records read, every value is sound.", "", *facts(head), ""]
    lines += table(["RECORD", "COUNT", "OURS ALSO NEEDS"], rows, width=0, right=[1])
    if found.unplaced:
        lines += ["", f"{len(found.unplaced)} fields have no place here:"]
        pairs = [[inert(one.pointer), one.kind] for one in found.unplaced]
        lines += table(["FIELD", "KIND"], pairs, width=0)
    else:
        lines += ["", "Every field has a place here."]
    return [*lines, "", LATER]
