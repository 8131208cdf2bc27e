"""The page of the contract file says what the models accept, and its examples validate."""

import json
import re
import tomllib

import pytest
from pydantic import BaseModel

from contracts.contract import Context, Environment, Evaluation, Policy, ResearchContract, Strategy
from tests.architecture.tree import ROOT

PARTS: dict[str, type[BaseModel]] = {
    "context": Context,
    "environment": Environment,
    "evaluation": Evaluation,
    "strategy": Strategy,
    "policy": Policy,
}
# In the model, and not for the page: `goal_id` is filled in by `plan`; the others are not built.
UNWRITTEN = {"goal_id", "inputs", "setup", "setup_inputs"}
ROW = re.compile(r"^\| `(\w+)` \| `(.*?)` \| (.*?) \| .+ \|$", re.MULTILINE)


def page() -> str:
    return (ROOT / "docs/reference/contract-file.md").read_text(encoding="utf-8")


def rows(part: str) -> dict[str, tuple[str, str]]:
    body = page().split(f"## [{part}]\n", maxsplit=1)[1].split("\n## ", maxsplit=1)[0]
    return {key: (example, default) for key, example, default in ROW.findall(body)}


def validate(text: str) -> ResearchContract:
    values = tomllib.loads(text)
    values["context"]["goal_id"] = "example"
    return ResearchContract.model_validate(
        values | {"base_commit": "0" * 40, "protected_scope_sha256": "0" * 64}
    )


@pytest.mark.parametrize("part", PARTS)
def test_every_key_of_a_part_is_documented_and_no_other(part: str) -> None:
    assert set(rows(part)) == set(PARTS[part].model_fields) - UNWRITTEN


@pytest.mark.parametrize("part", PARTS)
def test_a_documented_default_is_the_models(part: str) -> None:
    for key, (_, said) in rows(part).items():
        field = PARTS[part].model_fields[key]
        if said == "required":
            assert field.is_required(), key
            continue
        assert not field.is_required(), key
        default = field.get_default(call_default_factory=True, validated_data={})
        if said.startswith("`"):
            value = tomllib.loads(f"x = {said.strip('`')}")["x"]
            assert value == (list(default) if isinstance(default, tuple) else default), key
        else:
            assert not default, f"{key}: {said}"


def test_the_examples_of_the_page_make_a_contract() -> None:
    text = "\n".join(
        f"[{part}]\n" + "\n".join(f"{key} = {example}" for key, (example, _) in rows(part).items())
        for part in PARTS
    )
    assert validate(text).evaluation.metric == "speedup"


def test_the_smallest_contract_of_the_how_to_is_valid() -> None:
    text = (ROOT / "docs/how-to/own-repository.md").read_text(encoding="utf-8")
    found = re.search(r"```toml\n(.*?)```", text, re.DOTALL)
    assert found is not None
    assert validate(found[1]).policy.max_attempts == 20


def test_the_line_of_the_queue_has_the_keys_of_the_presets_lines() -> None:
    found = re.search(r"```json\n(.*?)```", page(), re.DOTALL)
    assert found is not None
    queue = (ROOT / "demo/presets/knn/repo/hypotheses.jsonl").read_text(encoding="utf-8")
    assert set(json.loads(found[1])) == set(json.loads(queue.splitlines()[0]))
