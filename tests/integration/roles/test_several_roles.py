"""One agent with all four roles runs a whole goal in one worker process."""

from pathlib import Path

from contracts.events import Signed
from projection.reading import replay_goal
from projection.verify import verify
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
    try:
        wait_until(lambda: running.tend() == 0, description="the goal is over", timeout_s=50)
    finally:
        running.signal()
        for process in running.processes():
            process.wait(timeout=20)
    assert verify(context.reader).exit_code(records_only=False) == 0
    events = replay_goal(context.reader).state.events.values()
    assert {str(each.role) for each in events if isinstance(each, Signed)} == {
        "curator",
        "evaluator",
    }
