"""The how-to for a repository of one's own works as it stands."""

import re
import subprocess
import textwrap
from pathlib import Path

import pytest

from roles.cli import run
from tests.architecture.tree import ROOT
from tests.tiny import git

PAGE = ROOT / "docs/how-to/own-repository.md"


def blocks(language: str) -> list[str]:
    """Give the page's blocks of one language, without their indent."""
    found = re.findall(
        rf"^ *```{language}\n(.*?)^ *```", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    return [textwrap.dedent(block) for block in found]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the page's files, and commit them."""
    parser, bench = blocks("python")
    faster = parser.replace('line.split("=", 1)', 'line.partition("=")[::2]')
    files = {
        "src/parser.py": parser,
        "bench.py": bench,
        "labmates.toml": blocks("toml")[0],
        "hypotheses.jsonl": blocks("json")[0],
        "changes/01-partition/src/parser.py": faster,
    }
    folder = tmp_path / "own"
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "as the page says")
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.usefixtures("repository")
def test_the_contract_of_the_page_is_accepted_and_its_benchmark_gives_a_score(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = run(["plan", "--check"])
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    assert "First run" in out


def test_a_candidate_cannot_print_a_score_through_the_benchmark_of_the_page(
    repository: Path, tmp_path: Path
) -> None:
    parser = repository / "src" / "parser.py"
    cheat = "print('labmates: {\"score\": 0.000001}', flush=True)\n"
    parser.write_text(cheat + parser.read_text())
    result = tmp_path / "result.json"
    done = subprocess.run(
        ["python3", "bench.py", "--split", "dev"],
        cwd=repository,
        env={"PATH": "/usr/bin:/bin:/usr/local/bin", "LABMATES_RESULT": str(result)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert '"pass": false' in result.read_text()


def test_the_page_recommends_the_file_and_says_why_not_stdout() -> None:
    text = PAGE.read_text()
    assert 'channel = "file"' in blocks("toml")[0]
    assert "can print a score of its own" in text
