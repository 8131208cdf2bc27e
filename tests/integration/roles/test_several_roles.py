"""One agent with all four roles runs a whole goal in one worker process."""

import json
from pathlib import Path

from contracts.events import Signed
from contracts.words import Role, State
from projection.reading import replay_goal
from roles.lanes.launch import Lanes
from tests.support import wait_until
from tests.tiny import make_goal, make_repository
from tests.unit.cli.program import run

CHANGES = {"double": {"value.txt": "2\n"}, "best": {"value.txt": "6\n"}}


def test_one_agent_with_all_roles_runs_a_goal_and_each_record_names_its_role(
    server_of_home: str, tmp_path: Path
) -> None:
    del server_of_home
    context = make_goal(make_repository(tmp_path / "repo", changes=CHANGES), "alone")
    run("agent", "add", "solo", "--role", "curator,proposer,executor,evaluator")
    running = Lanes(context)
    running.start([("solo", None)])
    (worker,) = running.processes()
    try:
        wait_until(lambda: running.tend() == 0, description="the goal is over", timeout_s=50)
    finally:
        running.signal()
        worker.wait(timeout=20)
    assert worker.returncode == 0
    assert json.loads(run("status", "--json").stdout)["phase"] == "done"
    assert run("verify").stdout.startswith("sound, done")
    state = replay_goal(context.reader).state
    written = [each for each in state.events.values() if each.agent_id == "solo"]
    assert all(each.role and str(each.stream) == str(each.role) for each in written)
    assert {each.role for each in written} == set(Role)
    for item in state.hypothesis_items():
        assert item.state == State.PROMOTED
        signed = [state.events[revision] for revision in item.signatures]
        assert [each.agent_id for each in signed if isinstance(each, Signed)] == ["solo", "solo"]
        assert [each.role for each in signed] == [Role.EVALUATOR, Role.CURATOR]
