"""`labmates import`: another implementation's records, read and checked."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contracts.errors import UsageError
from contracts.imports import Imported, parse_import
from contracts.store.home import labmates_home
from roles.cli import run

FIXTURE = Path(__file__).parents[1] / "fixtures" / "decentralized-auto-research-knn.public.json"
Document = dict[str, Any]


@pytest.fixture
def document() -> Document:
    found = json.loads(FIXTURE.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def read(document: Document, **options: bool) -> Imported:
    return parse_import(json.dumps(document), **options)


def fault(document: Document, **options: bool) -> UsageError:
    with pytest.raises(UsageError) as caught:
        read(document, **options)
    assert caught.value.exit_code == 2
    return caught.value


def test_the_public_fixture_is_read_and_each_field_without_a_place_is_named(
    document: Document,
) -> None:
    found = read(document)
    assert found.goal_id == "loopx-auto-research-knn"
    assert found.counts() == {
        "research_contract_v0": 1,
        "agent_registration_v0": 2,
        "research_hypothesis_v0": 4,
        "research_evidence_event_v0": 3,
    }
    named = {one.pointer: one.kind for one in found.unplaced}
    per_hypothesis = {"claimed_by": "string", "status": "string"}
    expected = {
        f"/hypotheses/{n}/{key}": kind for n in range(4) for key, kind in per_hypothesis.items()
    }
    expected |= {f"/hypotheses/{n}/blocked_by": "array of 0" for n in range(3)}
    expected |= {
        "/hypotheses/3/blocked_by": "array of 1",
        "/generated_at": "string",
        "/research_contract/metric/baseline": "number",
        "/research_contract/promotion_policy": "string",
    }
    assert named == expected


def leaves(value: object, pointer: str = "") -> set[str]:
    if isinstance(value, dict):
        return {leaf for key, below in value.items() for leaf in leaves(below, f"{pointer}/{key}")}
    return {pointer}


def test_every_field_of_the_fixture_is_either_placed_or_named(document: Document) -> None:
    found = read(document)
    named = {one.pointer for one in found.unplaced}
    everything = {
        leaf
        for key in ("hypotheses", "evidence_events")
        for number, item in enumerate(document[key])
        for leaf in leaves(item, f"/{key}/{number}")
        if not leaf.endswith("/schema_version")
    }
    placed = sum(
        len(record.fields) - ("frontier_rank" in record.fields)
        for record in found.mapped
        if record.pointer.startswith(("/hypotheses", "/evidence_events"))
    )
    assert placed + len(named & everything) == len(everything)


def test_values_are_kept_as_they_were(document: Document) -> None:
    evidence = [one for one in read(document).mapped if one.pointer == "/evidence_events/1"]
    fields = evidence[0].fields
    assert (fields["metric.value"], fields["split"], fields["attempt"]) == (4.3, "holdout", 2)
    assert "manifest" in evidence[0].lacks


def test_an_unknown_field_is_named_and_no_fault(document: Document) -> None:
    document["hypotheses"][1]["a/b~c"] = {"x": 1}
    document["evidence_events"][0]["metric"]["ci"] = None
    named = {one.pointer: one.kind for one in read(document).unplaced}
    assert named["/hypotheses/1/a~1b~0c"] == "object"
    assert named["/evidence_events/0/metric/ci"] == "null"


Edit = Callable[[Document], None]


def put(pointer: str, value: object) -> Edit:
    def edit(document: Document) -> None:
        *path, last = pointer.strip("/").split("/")
        place: Any = document
        for part in path:
            place = place[int(part)] if isinstance(place, list) else place[part]
        place[int(last) if isinstance(place, list) else last] = value

    return edit


@pytest.mark.parametrize(
    ("pointer", "value", "says"),
    [
        ("/evidence_events/0/attempt", 0, "whole number from 1"),
        ("/evidence_events/0/attempt", True, "whole number from 1"),
        ("/evidence_events/0/metric/value", "4.8", "finite number or null"),
        ("/evidence_events/0/metric/value", True, "finite number or null"),
        ("/evidence_events/0/metric/value", None, "is missing, but eval_status is scored"),
        ("/evidence_events/0/baseline_metric", [1], "finite number or null"),
        ("/evidence_events/0/split", "test", "must be one of dev, holdout"),
        ("/evidence_events/0/primary_metric_status", "better", "must be one of"),
        ("/evidence_events/0/failure_kind", "bad_luck", "must be one of"),
        ("/evidence_events/0/metric/direction", "up", "must be one of maximize, minimize"),
        ("/evidence_events/0/protected_scope_clean", "yes", "must be true or false"),
        ("/evidence_events/0/schema_version", "research_evidence_event_v9", "must be research"),
        ("/hypotheses/0/status", "winning", "must be one of"),
        ("/hypotheses/0/hypothesis", "", "must be text"),
        ("/hypotheses/1/hypothesis_id", "hyp_001", "stands there twice"),
        ("/hypotheses/1/parent_hypothesis_id", "hyp_999", "is no hypothesis of the file"),
        ("/hypotheses/1/parent_hypothesis_id", ["hyp_001"], "is no hypothesis of the file"),
        ("/hypotheses/2", "hyp", "must be an object"),
        ("/agents", "codex", "must be an array"),
        ("/agents/0", 7, "must be the name of an agent"),
    ],
)
def test_a_value_that_does_not_validate_is_named_by_its_path(
    document: Document, pointer: str, value: object, says: str
) -> None:
    put(pointer, value)(document)
    found = fault(document)
    assert found.message.startswith(f"{pointer} ")
    assert says in found.message
    assert found.tail == "Nothing was written."


def test_peer_case_49_a_local_path_in_a_reference_is_refused(document: Document) -> None:
    for ref in ("/home/me/report.md", "~/x", "./report", "..", "C:\\x", "file:///x", "a/b"):
        changed = copy.deepcopy(document)
        put("/evidence_events/0/artifact_refs/1", ref)(changed)
        found = fault(changed)
        assert found.message.startswith("/evidence_events/0/artifact_refs/1 ")
        assert "is a local path or a private address; a public alias" in found.message


@pytest.mark.parametrize("number", ["Infinity", "-Infinity", "NaN", "1e999"])
def test_peer_case_51_a_value_that_is_not_finite_is_refused(number: str) -> None:
    text = FIXTURE.read_text(encoding="utf-8").replace("4.8", number)
    with pytest.raises(UsageError, match=r"no JSON number|/evidence_events/0/metric/value"):
        parse_import(text)


def test_peer_case_52_an_unknown_eval_status_is_refused(document: Document) -> None:
    put("/evidence_events/2/eval_status", "great")(document)
    found = fault(document)
    assert found.message.startswith("/evidence_events/2/eval_status must be one of ")
    del document["evidence_events"][2]["eval_status"]
    assert fault(document).message == "/evidence_events/2/eval_status is missing"


def test_peer_case_66_evidence_with_raw_logs_is_refused(document: Document) -> None:
    for key in ("raw_logs_recorded", "private_artifacts_recorded"):
        changed = copy.deepcopy(document)
        put(f"/evidence_events/0/{key}", True)(changed)
        assert fault(changed).message.startswith(f"/evidence_events/0/{key} is true")
        put(f"/evidence_events/0/{key}", False)(changed)
        assert read(changed).counts()["research_evidence_event_v0"] == 3


def test_peer_case_70_a_value_that_contradicts_its_label_is_refused(document: Document) -> None:
    put("/evidence_events/0/primary_metric_status", "regressed")(document)
    assert "is regressed, but 4.8 against 1 is not" in fault(document).message
    put("/evidence_events/0/metric/direction", "minimize")(document)
    assert read(document).goal_id
    put("/evidence_events/0/primary_metric_status", "improved")(document)
    assert "is improved, but 4.8 against 1 is not" in fault(document).message


def test_peer_case_72_an_https_reference_needs_to_be_allowed(document: Document) -> None:
    put("/evidence_events/0/artifact_refs/0", "https://example.org/report?x=1")(document)
    assert "--allow-https" in fault(document).message
    assert read(document, allow_https=True).goal_id
    for bad in ("http://example.org/x", "https://user:pw@example.org/", "ssh://x", "https://a b"):
        put("/evidence_events/0/artifact_refs/0", bad)(document)
        fault(document, allow_https=True)


def test_peer_case_88_evidence_of_an_unknown_hypothesis_is_refused(document: Document) -> None:
    put("/evidence_events/2/hypothesis_id", "hyp_777")(document)
    message = fault(document).message
    assert message == (
        '/evidence_events/2/hypothesis_id names "hyp_777", which is no hypothesis of the file'
    )


def test_several_faults_are_named_at_once(document: Document) -> None:
    for number in range(3):
        put(f"/evidence_events/{number}/split", "test")(document)
    found = fault(document)
    assert found.facts["also"].count("\n") == 1
    assert "/evidence_events/2/split" in found.facts["also"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is no JSON"),
        ("[]", "no JSON object with a schema_version"),
        ('{"schema_version": "other_v1"}', "'other_v1' are not known here"),
        ('{"schema_version": "decentralized_auto_research_fixture_v0"}', "holds no record"),
        ('{"schema_version": "a", "schema_version": "b"}', "'schema_version' twice"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_file_that_is_no_such_file_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=r"the file|records of the kind") as caught:
        parse_import(text)
    assert says in caught.value.message


def test_the_command_prints_counts_and_fields_and_writes_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["import", str(FIXTURE)]) == 0
    out = capsys.readouterr().out
    assert "research_hypothesis_v0          4" in out
    assert "15 fields have no place here:" in out
    assert "/hypotheses/3/blocked_by" in out
    assert out.rstrip().splitlines()[-1].startswith("Nothing was written: ")
    assert run(["import", str(FIXTURE), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["written"] is False
    assert len(found["unplaced"]) == 15
    assert not labmates_home().exists()


def test_a_file_that_cannot_be_read_is_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "latin").write_bytes(b'{"x": "\xe9"}')
    for path in (tmp_path / "nowhere", tmp_path, tmp_path / "latin"):
        assert run(["import", str(path), "--json"]) == 2
        out, err = capsys.readouterr()
        assert json.loads(out)["error"]["code"] == "usage"
        assert err == ""


def test_text_of_the_file_cannot_move_the_cursor(
    tmp_path: Path, document: Document, capsys: pytest.CaptureFixture[str]
) -> None:
    document["\x1b[2J"] = 1
    document["research_contract"]["goal_id"] = "x\x1b[31m"
    path = tmp_path / "f.json"
    path.write_text(json.dumps(document))
    assert run(["import", str(path)]) == 0
    assert "\x1b" not in capsys.readouterr().out
