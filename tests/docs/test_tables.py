"""Generated tables say what the code says now."""

import re
from pathlib import Path

import pytest

from contracts import errors
from tests.architecture.tree import ROOT
from tests.docs import tables


@pytest.mark.parametrize("file", tables.generated_files())
def test_a_generated_table_is_what_the_code_renders(file: str) -> None:
    committed = (ROOT / file).read_text(encoding="utf-8")
    assert committed == tables.rendered(file), "run: make docs"


def test_a_changed_cell_of_a_generated_table_is_found() -> None:
    committed = (ROOT / "docs/reference/errors.md").read_text(encoding="utf-8")
    edited = committed.replace("| 4 |", "| 5 |", 1)
    assert edited != committed
    assert tables.with_block(edited, "errors", tables.errors_table()) == committed


def test_every_error_has_a_docstring_a_word_and_a_documented_exit_code() -> None:
    page = (ROOT / "docs/reference/exit-codes.md").read_text(encoding="utf-8")
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    classes = tables.error_classes()
    assert len(classes) > 10
    for cls in classes:
        assert "__doc__" in vars(cls)
        assert (cls.__doc__ or "").strip(), cls.__name__
        assert cls.exit_code in documented, cls.__name__
        assert cls.code.replace("_", "").isalpha(), cls.__name__
    assert documented >= {0, 1, 130}
    words = [cls.code for cls in classes]
    assert len(words) == len(set(words))


def test_the_drawn_tree_of_errors_is_the_tree_of_classes() -> None:
    drawn = re.findall(r"^( +)(\w+Error)\b", errors.__doc__ or "", re.MULTILINE)
    depths = [(len(indent) // 2 - 2, name) for indent, name in drawn]
    base = len(errors.LabmatesError.__mro__)
    classes = {(len(cls.__mro__) - base, cls.__name__) for cls in tables.error_classes()}
    assert set(depths) == classes


@pytest.mark.parametrize("file", sorted(tables.CASE_FILES))
def test_every_test_of_a_case_is_in_the_table_of_its_kind(file: str) -> None:
    rows = tables.CASE_ROW.findall((ROOT / file).read_text(encoding="utf-8"))
    numbers = [int(number) for number, _, _ in rows]
    assert len(numbers) == len(set(numbers)) > 30
    unknown = set(tables.case_tests()[tables.CASE_FILES[file]]) - set(numbers)
    assert unknown == set()


@pytest.mark.parametrize("file", sorted(tables.CASE_FILES))
def test_every_row_of_a_case_names_a_test_or_says_why_not(file: str) -> None:
    for number, _, state in tables.CASE_ROW.findall(Path(ROOT / file).read_text(encoding="utf-8")):
        later = r"not yet: \S.{3,}" if "field" in file else "not yet"
        assert re.fullmatch(rf"(`test_\w+`(<br>)?)+|{later}|never: \S.{{8,}}", state), number


def test_a_row_gets_its_tests_and_loses_those_that_are_gone() -> None:
    text = "| 1 | a | not yet |\n| 2 | b | `test_field_case_2_gone` |\n| 3 | c | never: no tmux |\n"
    assert tables.with_cases(text, {1: ["test_field_case_1_a", "test_field_case_1_b"]}) == (
        "| 1 | a | `test_field_case_1_a`<br>`test_field_case_1_b` |\n"
        "| 2 | b | not yet |\n"
        "| 3 | c | never: no tmux |\n"
    )
