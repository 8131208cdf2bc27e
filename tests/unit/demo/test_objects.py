"""The workspace's commit in plain Python is the one that git makes."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from demo.objects import commit_id, tree_entries, tree_id, workspace_files
from demo.packet import planned_contract
from demo.preset import Preset, load_preset, make_workspace
from roles.goal.contract_file import read_contract
from roles.workspace.git import Git


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize("python", [sys.executable, '/odd \\path/"quoted"/python'])
def test_the_knn_workspace_has_the_commit_that_was_worked_out(tmp_path: Path, python: str) -> None:
    preset = load_preset("knn")
    commit = make_workspace(preset, tmp_path / "w", python=python)
    files = workspace_files(preset, python=python)
    assert commit_id(preset, files) == commit
    assert tree_id(files).hex() == git(tmp_path / "w", "rev-parse", "HEAD^{tree}")
    assert tree_entries(files) == Git(tmp_path / "w").list_tree(commit)


def test_folders_are_sorted_as_git_sorts_them(tmp_path: Path) -> None:
    preset = with_files(
        tmp_path / "p",
        {
            "data.txt": "1",
            "data/b": "2",
            "data-x": "3",
            "data/a/é": "4",
            "__pycache__/x": "5",
            "y.pyc": "6",
        },
    )
    commit = make_workspace(preset, tmp_path / "w", python=sys.executable)
    assert commit_id(preset, workspace_files(preset, python=sys.executable)) == commit


def test_the_planned_contract_is_the_one_that_the_run_approves(tmp_path: Path) -> None:
    preset = load_preset("knn")
    make_workspace(preset, tmp_path / "w", python=sys.executable)
    planned = planned_contract(preset, "knn-7", python=sys.executable)
    assert planned == read_contract(tmp_path / "w", goal_id="knn-7").contract


def with_files(folder: Path, more: dict[str, str]) -> Preset:
    """Give a preset of the knn contract with other files beside it."""
    knn = load_preset("knn")
    for name, text in ({"labmates.toml": knn.contract.read_text()} | more).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return replace(knn, repo_files=folder, contract=folder / "labmates.toml")
