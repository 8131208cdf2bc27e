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


def test_peer_case_139_four_lanes_in_fixed_order_each_with_profile_and_its_own_guard(
    packet: DemoPacket,
) -> None:
    lanes = packet.to_json_dict()["lanes"]
    assert [lane["agent_id"] for lane in lanes] == [
        f"{role}-1" for role in ("curator", "proposer", "executor", "evaluator")
    ]
    for lane in lanes:
        agent_id = lane["agent_id"]
        assert lane["argv"][:6] == [
            *("labmates", "worker", "--role", lane["role"], "--agent-id", agent_id)
        ]
        assert lane["quota_guard"][:5] == [
            *("labmates", "quota", "should-run", "--agent-id", agent_id)
        ]
        assert all(lane[name] for name in ("capability", "primary_job", "may_write", "must_not"))


def test_peer_case_141_the_packet_has_the_commands_that_attach_and_stop(packet: DemoPacket) -> None:
    document = packet.to_json_dict()
    assert document["attach"] == ["labmates", "demo", "--execute", "--headless"]
    assert document["stop"] == ["labmates", "down", "--goal-id", "knn-1"]


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
