"""The dry-run packet: small, true, and as wide as the terminal."""

import re
from pathlib import Path

import pytest

from contracts.canonical import canonical
from demo.goals import next_goal_id
from demo.packet import LIMIT_BYTES, DemoPacket, build_packet
from demo.packet_text import packet_lines
from demo.preset import load_preset
from roles.cli import COMMANDS


@pytest.fixture
def packet() -> DemoPacket:
    return build_packet(load_preset("knn"), python="/usr/bin/python3")


def test_the_document_is_small_and_its_commands_are_argument_lists(packet: DemoPacket) -> None:
    document = packet.to_json_dict()
    assert len(canonical(document).encode()) < LIMIT_BYTES
    assert DemoPacket.model_validate(document) == packet
    assert [lane["argv"][:4] for lane in document["lanes"]] == [
        ["labmates", "worker", "--role", role]
        for role in ("curator", "proposer", "executor", "evaluator")
    ]
    assert all(lane["may_write"] and lane["must_not"] for lane in document["lanes"])


@pytest.mark.parametrize("width", [80, 120])
def test_the_text_is_ascii_that_fits_and_pastes_as_it_looks(packet: DemoPacket, width: int) -> None:
    lines = packet_lines(packet, width=width)
    assert lines[0] == "Dry run of preset knn. Nothing was started, written or spent."
    assert [line for line in lines if len(line) > width or line != line.rstrip()] == []
    assert "\n".join(lines).isascii()
    assert any(line.startswith("Start it   labmates demo --execute --headless") for line in lines)


@pytest.mark.parametrize("width", [80, 120])
def test_the_text_names_only_commands_that_there_are(packet: DemoPacket, width: int) -> None:
    named = re.findall(r"labmates ([a-z]+)", "\n".join(packet_lines(packet, width=width)))
    assert set(named) <= set(COMMANDS)
    assert {"worker", "status", "quota", "pause", "down", "demo"} <= set(named)


def test_the_next_goal_is_one_more_than_any_folder_or_stored_goal(store_home: Path) -> None:
    assert next_goal_id("knn") == "knn-1"
    (store_home / "demo" / "knn-2").mkdir(parents=True)
    (store_home / "goals" / "knn-10").mkdir(parents=True)
    (store_home / "goals" / "knn-x-11").mkdir(parents=True)
    assert next_goal_id("knn") == "knn-11"
    assert next_goal_id("knn", ["knn-011", "knn-20", "other-99"]) == "knn-21"
