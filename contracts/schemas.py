"""JSON Schemas of the records, and their pages; `python -m contracts.schemas` writes both.

The committed files (`contracts/schema/*.json`, `docs/reference/protocols/*.md`) are what
`labmates schema` prints and what others read; a test renders them again and compares.
"""

import inspect
import json
import sys
from pathlib import Path
from typing import Any

from contracts import contract, records
from contracts.events import EVENT_ADAPTER
from contracts.models import Record

EVENTS = "events"
_MODULES = (records, contract)


def public_records() -> dict[str, type[Record]]:
    """Give every record that has a name with a version, by that name, sorted."""
    found: dict[str, type[Record]] = {}
    for module in _MODULES:
        for _, cls in inspect.getmembers(module, inspect.isclass):
            if issubclass(cls, Record) and "schema_version" in cls.model_fields:
                found[str(cls.model_fields["schema_version"].default)] = cls
    return dict(sorted(found.items()))


def schemas() -> dict[str, dict[str, Any]]:
    """Give the JSON Schema of every public record, and of all events as one."""
    found = {name: cls.model_json_schema() for name, cls in public_records().items()}
    return {**found, EVENTS: EVENT_ADAPTER.json_schema()}


def schema_text(schema: dict[str, Any]) -> str:
    """Give a schema as its committed file has it."""
    return json.dumps(schema, indent=1, sort_keys=True, ensure_ascii=True) + "\n"


def page(name: str, schema: dict[str, Any]) -> str:
    """Give the page of one record: what it is, and a table of its fields and of its parts."""
    lines = [
        f"# {name}",
        "",
        "Made from the models in `contracts/` by `python -m contracts.schemas`.",
        f"`labmates schema {name}` prints the JSON Schema.",
        "",
        *_section(schema),
    ]
    for part, below in sorted(schema.get("$defs", {}).items()):
        lines += ["", f"## {part}", "", *_section(below)]
    return "\n".join(lines).rstrip() + "\n"


def index(names: list[str]) -> str:
    """Give the page that lists the others."""
    rows = [f"- [{name}]({name}.md)" for name in names]
    head = "Records that labmates writes and reads. Every one is closed: unknown fields are errors."
    return "\n".join(["# Protocols", "", head, "", *rows]) + "\n"


def rendered() -> dict[str, str]:
    """Give every generated file with its text, by its path from the root of the repository."""
    found: dict[str, str] = {}
    pages: list[str] = []
    for name, schema in schemas().items():
        found[f"contracts/schema/{name}.json"] = schema_text(schema)
        if name != EVENTS:
            found[f"docs/reference/protocols/{name}.md"] = page(name, schema)
            pages.append(name)
    found["docs/reference/protocols/index.md"] = index(pages)
    return found


def _section(schema: dict[str, Any]) -> list[str]:
    lines = [" ".join(str(schema.get("description", "")).split()) or "A record."]
    if "enum" in schema:
        return [*lines, "", "One of: " + ", ".join(f"`{word}`" for word in schema["enum"]) + "."]
    needed = schema.get("required", [])
    rows = [
        f"| `{name}` | {_type(field)} | {'yes' if name in needed else _default(field)} |"
        f" {_meaning(field)} |"
        for name, field in schema.get("properties", {}).items()
    ]
    return [
        *lines,
        "",
        "| field | type | needed, or default | meaning |",
        "|---|---|---|---|",
        *rows,
    ]


def _type(field: dict[str, Any]) -> str:  # noqa: PLR0911 - one per kind of JSON Schema
    if "$ref" in field:
        part = field["$ref"].rpartition("/")[2]
        return f"[{part}](#{part.lower()})"
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return " or ".join(f"`{word}`" for word in field["enum"])
    if options := field.get("anyOf") or field.get("oneOf"):
        return " or ".join(dict.fromkeys(_type(option) for option in options))
    kind = str(field.get("type", "any"))
    if kind == "array":
        return f"list of {_type(field.get('items', {}))}"
    if kind == "string" and field.get("format") == "date-time":
        return "time, UTC"
    return kind


def _default(field: dict[str, Any]) -> str:
    if "default" not in field:
        return "no"
    return f"`{json.dumps(field['default'])}`"


def _meaning(field: dict[str, Any]) -> str:
    limits = [
        f"{word} {field[name]}"
        for name, word in (
            ("minimum", "at least"),
            ("exclusiveMinimum", "above"),
            ("maximum", "at most"),
            ("minLength", "characters at least"),
            ("maxLength", "characters at most"),
            ("minItems", "entries at least"),
        )
        if name in field
    ]
    if "pattern" in field:
        limits.append(f"form `{field['pattern']}`".replace("|", "\\|"))
    parts = [" ".join(str(field.get("description", "")).split()), ", ".join(limits)]
    return "; ".join(part for part in parts if part)


def main() -> int:
    """Write every generated file; run in the root of the repository."""
    root = Path.cwd()
    if not (root / "contracts" / "schemas.py").is_file():
        sys.stderr.write("run this in the root of the repository\n")
        return 2
    for name, text in rendered().items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
