"""The documents: links resolve, text is ASCII, commands exist, examples run."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.commands import commands
from tests.architecture.tree import PRESET_DATA, ROOT, listed

# Not kept by hand: texts of others.
FOREIGN = {"LICENSE"}
# Commands of the docs that may be run as they stand: they only read, and need no goal.
SAFE = {"labmates demo", "labmates roles", "labmates store status"}
CODE = re.compile(r"^\s*```(\w*)\n(.*?)^\s*```", re.MULTILINE | re.DOTALL)


def documents() -> list[Path]:
    return [
        path
        for path in listed()
        if path.suffix == ".md" and not path.as_posix().startswith(PRESET_DATA)
    ]


def read(path: Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def anchors(text: str) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", CODE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


def broken_links(path: Path, text: str) -> list[str]:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", CODE.sub("", text)):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        found = (ROOT / path.parent / file).resolve() if file else ROOT / path
        inside = found.is_relative_to(ROOT) and found.exists()
        if not inside or (anchor and anchor not in anchors(found.read_text(encoding="utf-8"))):
            broken.append(f"{path}: {target}")
    return broken


def console_lines(text: str) -> list[str]:
    """Give the commands of the `console` blocks, prompt and comment cut off."""
    return [
        re.sub(r"\s+#.*$", "", line.strip()[2:])
        for language, body in CODE.findall(text)
        if language == "console"
        for line in body.splitlines()
        if line.strip().startswith("$ ")
    ]


def mentioned(text: str) -> set[str]:
    """Find each `labmates WORD [WORD]` of code spans and code blocks."""
    spans = re.findall(r"`([^`\n]+)`", CODE.sub("", text))
    blocks = [
        line
        for language, body in CODE.findall(text)
        if language in {"console", "sh"}
        for line in body.splitlines()
    ]
    found: set[str] = set()
    for piece in [*spans, *blocks]:
        for words in re.findall(r"(?<![\w./-])labmates ([a-z][a-z-]*(?: [a-z][a-z-]*)?)", piece):
            found.add(words)
    return found


def exists(words: str, known: set[str]) -> bool:
    """Tell whether `words` names a command, or a command and its first argument, or a group."""
    first = words.split(" ", maxsplit=1)[0]
    groups = {name.split(" ", maxsplit=1)[0] for name in known if " " in name}
    return words in known or first in known or words in groups


def test_there_are_documents() -> None:
    names = {str(path) for path in documents()}
    assert {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/index.md"} <= names


def test_every_page_of_the_docs_can_be_reached_from_the_index() -> None:
    seen, todo = set(), [Path("README.md"), Path("docs/index.md")]
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        todo += [
            Path(os.path.relpath((ROOT / path.parent / target).resolve(), ROOT))
            for target in re.findall(r"\]\(([^)#\s]+\.md)", read(path))
        ]
    assert {path for path in documents() if path.parts[0] == "docs"} <= seen


@pytest.mark.parametrize("path", documents(), ids=str)
def test_the_links_of_a_document_resolve(path: Path) -> None:
    assert broken_links(path, read(path)) == []


def test_the_check_of_links_sees_a_broken_one() -> None:
    text = "[a](docs/index.md) [b](docs/nothing.md) [c](#no-such-head)\n# Head\n"
    assert broken_links(Path("README.md"), text) == [
        "README.md: docs/nothing.md",
        "README.md: #no-such-head",
    ]


def test_documents_and_source_are_ascii() -> None:
    kinds = {".md", ".py", ".lua", ".toml", ".yaml", ".json"}
    texts = [path for path in listed() if path.suffix in kinds or path.name in {"Makefile", "run"}]
    strange = [
        str(path)
        for path in texts
        if path.name not in FOREIGN
        and path.parts[0] != "tests"
        and not (ROOT / path).read_bytes().isascii()
    ]
    assert strange == []


def test_every_command_of_the_docs_exists() -> None:
    known = set(commands())
    unknown = {
        f"{path}: labmates {words}"
        for path in documents()
        for words in mentioned(read(path))
        if not exists(words, known)
    }
    assert unknown == set()


def test_the_check_of_commands_sees_an_unknown_one() -> None:
    text = "`labmates verify` and `labmates fly`\n```console\n$ labmates gate shoot x\n```\n"
    known = {"verify", "gate show"}
    assert {words for words in mentioned(text) if not exists(words, known)} == {
        "fly",
        "gate shoot",
    }


def test_every_make_target_of_the_docs_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", read(Path("Makefile")), re.MULTILINE))
    for path in documents():
        asked = re.findall(r"`make ([a-z]+)`|^\$ make ([a-z]+)", read(path), re.MULTILINE)
        assert {a or b for a, b in asked} <= targets


def environment(home: Path) -> dict[str, str]:
    folder = Path(sys.executable).parent
    kept = {name: text for name, text in os.environ.items() if not name.startswith("LABMATES_")}
    return kept | {"PATH": f"{folder}{os.pathsep}{kept['PATH']}", "LABMATES_HOME": str(home)}


@pytest.mark.parametrize("command", sorted(SAFE))
def test_a_safe_command_of_the_docs_runs(command: str, tmp_path: Path) -> None:
    shown = {line for path in documents() for line in console_lines(read(path))}
    spans = " ".join(read(path) for path in documents())
    assert command in shown or f"`{command}`" in spans
    env = environment(tmp_path)
    done = subprocess.run(command.split(), cwd=tmp_path, env=env, capture_output=True, check=False)
    stopped = subprocess.run(["labmates", "store", "stop"], cwd=tmp_path, env=env, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout
    assert stopped.returncode == 0


@pytest.mark.parametrize(("answer", "claims"), [(0, True), (1, False), (4, False)])
def test_the_shell_line_of_the_readme_claims_only_on_a_yes(
    tmp_path: Path, answer: int, claims: bool
) -> None:
    lines = [body for language, body in CODE.findall(read(Path("README.md"))) if language == "sh"]
    assert len(lines) == 1
    said = tmp_path / "said"
    program = tmp_path / "bin" / "labmates"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$*" >> {said}\ncase "$2" in should-run) exit {answer};; esac\n'
    )
    program.chmod(0o755)
    shell = shutil.which("sh")
    assert shell is not None
    done = subprocess.run([shell, "-euc", lines[0]], env={"PATH": str(program.parent)}, check=False)
    assert done.returncode == 0
    asked = said.read_text().splitlines()
    assert asked[0] == "quota should-run --agent-id executor-1"
    assert asked[1:] == (["quota claim --agent-id executor-1"] if claims else [])
