import json
import subprocess
import tomllib
from pathlib import Path

import pytest

from contracts.errors import PreconditionError, UsageError
from demo.preset import load_preset, make_workspace, preset_names
from tests.knn import PRESET, change

LINES = [json.loads(line) for line in PRESET.queue.read_text().splitlines()]
REFERENCE = (PRESET.repo_files / "solution.py").read_text()
FAMILY = ("01-product", "03-select", "06-float32", "07-block-minima")


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def applies(patch: str, solution: str, tmp_path: Path) -> bool:
    make_workspace(PRESET, tmp_path / "w")
    (tmp_path / "w" / "solution.py").write_text(solution)
    path = PRESET.changes / patch / "change.patch"
    done = subprocess.run(
        ["git", "apply", "--check", str(path)], cwd=tmp_path / "w", capture_output=True, check=False
    )
    return done.returncode == 0


def test_an_unknown_preset_is_wrong_usage_and_lists_those_there_are() -> None:
    assert preset_names() == ["knn"]
    for name in ("kn", "", "../knn", "knn/repo"):
        with pytest.raises(UsageError, match="no preset") as caught:
            load_preset(name)
        assert caught.value.facts == {"presets": "knn"}


def test_the_same_files_give_the_same_commit_whatever_the_user_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make_workspace(PRESET, tmp_path / "one")
    home = tmp_path / "home"
    hooks = home / "hooks"
    hooks.mkdir(parents=True)
    (hooks / "pre-commit").write_text("#!/bin/sh\nexit 1\n")
    (hooks / "pre-commit").chmod(0o755)
    (home / ".gitconfig").write_text(
        f"[core]\n\thooksPath = {hooks}\n\tautocrlf = true\n[user]\n\tname = Somebody\n"
        "[init]\n\tdefaultBranch = trunk\n[commit]\n\tgpgsign = true\n"
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Somebody")
    second = make_workspace(PRESET, tmp_path / "two")
    monkeypatch.delenv("GIT_DIR")
    assert first == second == git(tmp_path / "two", "rev-parse", "main")
    assert git(tmp_path / "two", "status", "--porcelain", "--ignored") == ""
    assert not (tmp_path / "elsewhere").exists()


def test_a_workspace_holds_every_file_of_the_preset_and_nothing_else(tmp_path: Path) -> None:
    make_workspace(PRESET, tmp_path / "w")
    inside = set(git(tmp_path / "w", "ls-files").splitlines())
    there = {str(p.relative_to(PRESET.repo_files)) for p in PRESET.repo_files.rglob("*")}
    assert inside == {n for n in there if (PRESET.repo_files / n).is_file() and ".pyc" not in n}
    assert {"solution.py", "evaluate.py", "labmates.toml", "data/dev_seeds.json"} <= inside


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_a_workspace_is_never_made_over_something_that_is_there(kind: str, tmp_path: Path) -> None:
    dest, full = tmp_path / "w", tmp_path / "full"
    full.mkdir()
    (full / "mine.txt").write_text("mine")
    match kind:
        case "file":
            dest.write_text("mine")
        case "folder":
            dest = full
        case _:
            dest.symlink_to(tmp_path / "nowhere")
    with pytest.raises(PreconditionError, match="not an empty folder"):
        make_workspace(PRESET, dest)
    assert sorted(p.name for p in full.iterdir()) == ["mine.txt"]
    assert not (tmp_path / "nowhere").exists()


def test_an_empty_folder_may_become_the_workspace_and_may_name_an_interpreter(
    tmp_path: Path,
) -> None:
    odd = 'C:\\with "quotes"/python'
    make_workspace(PRESET, tmp_path, python=odd)
    fields = tomllib.loads((tmp_path / "labmates.toml").read_text())
    assert fields["environment"]["python"] == odd
    assert git(tmp_path, "status", "--porcelain") == ""


def test_without_git_nothing_is_left_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "no-programs"))
    with pytest.raises(PreconditionError, match="git is not installed"):
        make_workspace(PRESET, tmp_path / "w")
    assert list((tmp_path / "w").iterdir()) == []


def test_only_the_solution_may_be_edited() -> None:
    context = tomllib.loads(PRESET.contract.read_text())["context"]
    assert context["editable"] == ["solution.py"]
    code = {p.name for p in PRESET.repo_files.glob("*.py")} - {"solution.py"}
    assert code | {"data/**", "hypotheses.jsonl"} == set(context["protected"])


def test_every_line_of_the_queue_is_whole_and_its_change_exists() -> None:
    assert len(LINES) >= 10
    assert [line["priority"] for line in LINES] == list(range(1, len(LINES) + 1))
    assert len({line["title"] for line in LINES}) == len(LINES)
    assert {path.name for path in PRESET.changes.iterdir()} == {line["change"] for line in LINES}
    for line in LINES:
        assert line["source"] == "preset"
        assert len(line["title"]) <= 48
        assert line["mechanism_family"]
        assert line["rationale"]
        files = [p for p in (PRESET.changes / line["change"]).iterdir() if p.is_file()]
        expected = "change.patch" if line["driver"] == "patch" else "solution.py"
        assert [p.name for p in files] == [expected]


def test_the_patch_of_a_detail_applies_on_every_champion(tmp_path: Path) -> None:
    for number, solution in enumerate([REFERENCE, *map(change, FAMILY)]):
        assert applies("08-norms", solution, tmp_path / str(number))


def test_the_patch_of_the_brute_force_conflicts_on_every_champion_but_the_first(
    tmp_path: Path,
) -> None:
    assert applies("10-buffer", REFERENCE, tmp_path / "reference")
    for name in FAMILY:
        assert not applies("10-buffer", change(name), tmp_path / name)


def test_the_edit_outside_the_scope_applies_so_that_only_the_boundary_stops_it(
    tmp_path: Path,
) -> None:
    text = (PRESET.changes / "05-warm-up" / "change.patch").read_text()
    assert "+++ b/evaluate.py" in text
    assert applies("05-warm-up", change("03-select"), tmp_path)


@pytest.mark.parametrize(
    ("base", "champion", "attempt"),
    [("", "01-product", "03-select"), ("03-select", "06-float32", "07-block-minima")],
)
def test_an_attempt_whose_champion_moved_is_replayed_without_a_conflict(
    base: str, champion: str, attempt: str, tmp_path: Path
) -> None:
    texts = [change(champion), change(base) if base else REFERENCE, change(attempt)]
    for name, text in zip(("ours", "base", "theirs"), texts, strict=True):
        (tmp_path / name).write_text(text)
    merged = git(tmp_path, "merge-file", "-p", "ours", "base", "theirs")
    assert merged == texts[2].strip()
