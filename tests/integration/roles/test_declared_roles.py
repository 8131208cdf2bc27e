"""A role beyond the four is a declaration and a script: no code of the engine knows it."""

import json
import sys
from pathlib import Path

import pytest

from roles.lanes.launch import Lanes
from tests.support import wait_until
from tests.tiny import make_goal, make_repository
from tests.unit.cli.program import run

DECLARATION = """
name = "narrator"
capability_token = "synthesis_narrator"
primary_job = "say what the evidence says"
reads = ["graph", "frontier", "gates"]
command = ["{python}", "narrate.py"]
may_write = []
must_not = ["certify scores"]
"""
NARRATE = """
import json, sys
given = json.load(sys.stdin)
print(given["revision"], len(given["graph"]["nodes"]), len(given["gates"]))
"""


def declared(folder: Path) -> Path:
    """Write a declaration with its script beside it."""
    (folder / "narrate.py").write_text(NARRATE)
    file = folder / "narrator.toml"
    file.write_text(DECLARATION.format(python=Path(sys.base_prefix, "bin", "python3")))
    return file


def test_a_declared_role_reads_each_revision_and_is_handed_nothing(
    server_of_home: str, tmp_path: Path
) -> None:
    del server_of_home
    repository = make_repository(tmp_path / "repo", changes={"double": {"value.txt": "2\n"}})
    context = make_goal(repository, "narrated")
    run("agent", "add", "narrator-1", "--declare", str(declared(tmp_path)))
    answer = json.loads(
        run("quota", "should-run", "--agent-id", "narrator-1", "--json", code=1).stdout
    )
    assert (answer["reason"], answer["selected"]) == ("frontier_empty", None)
    assert "narrator" in run("roles").stdout
    running = Lanes(context)
    running.start([("narrator-1", None)])
    kept = context.folder / "lanes" / "narrator-1" / "latest.txt"
    try:
        wait_until(kept.exists, description="the narrator printed", timeout_s=20)
    finally:
        running.signal()
        for process in running.processes():
            process.wait(timeout=20)
    assert int(kept.read_text().split()[1]) > 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"narrator"', '"executor"'),
        ("may_write = []", 'may_write = ["decided"]'),
        ('"synthesis_narrator"', '"evaluator_promoter"'),
    ],
)
def test_a_declaration_takes_no_name_and_no_authority_of_the_four(
    server_of_home: str, tmp_path: Path, old: str, new: str
) -> None:
    del server_of_home
    file = declared(tmp_path)
    file.write_text(file.read_text().replace(old, new))
    run("agent", "add", "narrator-1", "--declare", str(file), code=2)
