"""No part of the product leads the others, in names or in words."""

import ast
import json
import re
from pathlib import Path

import pytest

from tests.architecture.tree import PRESET_DATA, ROOMS, ROOT, listed, parsed, python_files

RANKS = {"leader", "coordinator", "supervisor", "master", "orchestrator"}
DENIALS = re.compile(r"\b(no|not|never|without|nobody|none)\b", re.IGNORECASE)


def words_of(name: str) -> set[str]:
    """Split `snake_case` and `CamelCase` into lower-case words, singular."""
    parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
    return {part.lower().removesuffix("s") for part in parts}


def identifiers(tree: ast.AST) -> set[str]:
    """Collect what a file itself names: definitions, arguments, variables, keys of literals."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.ClassDef(name=name):
                found.add(name)
            case ast.arg(arg=name):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.Attribute(attr=name, ctx=ast.Store()):
                found.add(name)
            case ast.Dict(keys=keys):
                found |= {
                    key.value
                    for key in keys
                    if isinstance(key, ast.Constant) and isinstance(key.value, str)
                }
            case _:
                pass
    return found


def json_keys(value: object) -> set[str]:
    match value:
        case dict():
            return {str(key) for key in value}.union(*(json_keys(item) for item in value.values()))
        case list():
            return set[str]().union(*(json_keys(item) for item in value))
        case _:
            return set()


def ranked_sentences(text: str) -> list[str]:
    """Find sentences that name a rank and do not deny it."""
    prose = re.sub(r"\]\([^)]*\)", "]", text)
    sentences = re.split(r"(?<=[.!?:;|])\s+|\n\s*\n|\n(?=[-|#])", prose)
    return [
        " ".join(sentence.split())
        for sentence in sentences
        if words_of(sentence) & RANKS and not DENIALS.search(sentence)
    ]


def test_no_name_in_the_code_is_a_rank() -> None:
    ranked = [
        f"{path}: {name}"
        for path in python_files(*ROOMS)
        for name in sorted(identifiers(parsed(path)))
        if words_of(name) & RANKS
    ]
    assert ranked == []


def test_no_json_key_is_a_rank() -> None:
    ranked = [
        f"{path}: {key}"
        for path in listed()
        if path.suffix == ".json" and path.parts[0] in (*ROOMS, "docs")
        for key in sorted(json_keys(json.loads((ROOT / path).read_text(encoding="utf-8"))))
        if words_of(key) & RANKS
    ]
    assert ranked == []


def prose_files() -> list[Path]:
    return [
        path
        for path in listed()
        if path.suffix in {".md", ".lua", ".toml"} and not path.as_posix().startswith(PRESET_DATA)
    ]


def test_the_docs_name_a_rank_only_to_deny_it() -> None:
    ranked = {
        str(path): found
        for path in prose_files()
        if (found := ranked_sentences((ROOT / path).read_text(encoding="utf-8")))
    }
    assert ranked == {}


@pytest.mark.parametrize(
    "source",
    [
        "class LaneSupervisor: ...",
        "def elect_leader() -> None: ...",
        "def f(masters: int) -> None: ...",
        "coordinator = 1",
        'x = {"orchestrator_id": 1}',
    ],
)
def test_the_check_of_names_sees_a_rank(source: str) -> None:
    assert any(words_of(name) & RANKS for name in identifiers(ast.parse(source)))


def test_the_check_of_words_sees_a_rank() -> None:
    assert ranked_sentences("The leader decides. They are peers; no leader, and no master.") == [
        "The leader decides."
    ]
    assert json_keys({"a": [{"leader_id": 1}]}) == {"a", "leader_id"}
