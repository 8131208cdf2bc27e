"""Small repositories with a contract, for tests."""

import json
from pathlib import Path

from roles.workspace.git import Git
from tests.integration.roles.repositories import make_repository

CONTRACT = """\
[context]
objective = "Sort faster, same answers."
editable = ["solution.py"]
protected = ["bench.py", "data/**"]

[environment]
timeout_s = 5

[evaluation]
metric = "seconds"
direction = "minimize"
dev = "python bench.py --split dev"
holdout = "python bench.py --split holdout"
target = 0.5
min_gain = 0.05

[strategy]
queue = "hypotheses.jsonl"
driver = "patch"

[policy]
max_attempts = 20
"""
LINE = {
    "hypothesis": "Sort less.",
    "rationale": "Sorting is slow.",
    "confidence": 0.9,
    "expected_delta": "-10%",
    "priority": 1,
    "source": "person",
    "change": "01-sort",
}
FILES = {
    "solution.py": "x = 1\n",
    "bench.py": "print('seconds', 0.75)\n",
    "data/one.txt": "1\n",
    "README.md": "hello\n",
    "hypotheses.jsonl": json.dumps(LINE) + "\n",
}


def changed(*edits: tuple[str, str]) -> str:
    """Give the contract with texts replaced; each must be there."""
    text = CONTRACT
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return text


def make_project(path: Path, *, contract: str = CONTRACT, **files: str) -> Git:
    """Make a repository with the files above and a contract, all committed.

    Args:
        path: Must not exist.
        contract: Content of labmates.toml.
        files: More files, or others; `__` in a name is a dot.
    """
    more = {name.replace("__", "."): text for name, text in files.items()}
    return make_repository(path, FILES | {"labmates.toml": contract} | more)
