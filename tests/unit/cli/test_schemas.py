"""The committed schemas and their pages are what the models render now."""

import json

import pytest

from contracts import schemas
from contracts.records import NextAction
from tests.architecture.tree import ROOT
from tests.unit.cli.program import run

RENDERED = schemas.rendered()


@pytest.mark.parametrize("file", sorted(RENDERED))
def test_a_committed_schema_or_page_is_what_the_models_render(file: str) -> None:
    committed = (ROOT / file).read_text(encoding="utf-8")
    assert committed == RENDERED[file], "run: python -m contracts.schemas"


def test_no_schema_or_page_is_left_of_a_record_that_is_gone() -> None:
    folders = ("contracts/schema", "docs/reference/protocols")
    there = {f"{folder}/{path.name}" for folder in folders for path in (ROOT / folder).iterdir()}
    assert there == set(RENDERED)


def test_the_list_of_schemas_has_every_public_record_and_the_events() -> None:
    names = run("schema").stdout.split()
    assert set(names) == {*schemas.public_records(), "events"}
    assert "agent_lane_next_action_v0" in names


def test_a_schema_is_printed_as_one_json_document() -> None:
    printed = json.loads(run("schema", "agent_lane_next_action_v0", "--json").stdout)
    assert printed == json.loads(json.dumps(NextAction.model_json_schema()))


def test_an_unknown_schema_is_wrong_usage_and_names_the_known_ones() -> None:
    done = run("schema", "research_hypothesis", code=2)
    assert done.stderr.startswith("labmates: there is no record 'research_hypothesis'")
    assert "labmates schema research_hypothesis_v0" in done.stderr
