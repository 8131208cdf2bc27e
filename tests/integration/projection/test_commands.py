"""The commands as a person runs them: text, JSON, exit codes, and no write anywhere."""

import json
import subprocess
from pathlib import Path

import pytest
import redis

from contracts.store import keys
from contracts.words import Stream
from projection.folders import write_new
from roles.cli import run
from tests import scenario as scenarios
from tests.scenario import Scenario


@pytest.fixture
def place(server_url: str, goal_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point the commands at the test's own goal."""
    monkeypatch.setenv("LABMATES_STORE_URL", server_url)
    monkeypatch.setenv("LABMATES_GOAL_ID", goal_id)


@pytest.fixture
def shared(played: Scenario, server_url: str, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    """Point the commands at the module's goal."""
    monkeypatch.setenv("LABMATES_STORE_URL", server_url)
    monkeypatch.setenv("LABMATES_GOAL_ID", played.goal_id)
    return played


def git(repository: Path, *args: str) -> str:
    """Run git in a test's repository."""
    identity = [
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@localhost",
        "-c",
        "init.defaultBranch=main",
    ]
    done = subprocess.run(
        ["git", *identity, "-C", str(repository), *args],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def snapshot(client: redis.Redis, goal_id: str) -> dict[str, str]:
    """Dump every key of a goal."""
    found = sorted(client.scan_iter(match=f"{keys.prefix(goal_id)}*"))
    return {str(key): str(client.object("encoding", key)) + _content(client, key) for key in found}


def _content(client: redis.Redis, key: str) -> str:
    kind = client.type(key)
    if kind == "hash":
        return repr(sorted(client.hgetall(key).items()))
    if kind == "stream":
        return repr(client.xrange(key))
    if kind == "zset":
        return repr(client.zrange(key, 0, -1, withscores=True))
    return repr(sorted(client.smembers(key)) if kind == "set" else client.lrange(key, 0, -1))


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        (["verify"], 0, "sound, done: "),
        (["verify", "--records"], 0, "sound, done: "),
        (["attempt", "list"], 0, "refuted, boundary"),
        (["attempt", "show", "1"], 0, "held-out   2.37x [2.27, 2.46]"),
        (["attempt", "show", "1", "--log"], 0, "no log of attempt 1"),
        (["champion", "show"], 0, "block minima"),
        (["graph", "--format", "mermaid"], 0, "flowchart LR"),
        (["report"], 0, "done: 14.38x [13.80, 14.95] on held-out, target 7.00x."),
    ],
)
def test_a_command_answers_in_eighty_columns(
    capsys: pytest.CaptureFixture[str], argv: list[str], code: int, says: str
) -> None:
    assert run(argv) == code

    out, err = capsys.readouterr()
    assert says in out
    assert err == ""
    if argv[0] not in {"graph", "report"}:
        assert all(len(line) <= 80 for line in out.splitlines())


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize(
    "argv",
    [
        ["verify"],
        ["attempt", "list"],
        ["attempt", "show", "2"],
        ["champion", "show"],
        ["graph"],
        ["report"],
    ],
)
def test_json_is_one_document(capsys: pytest.CaptureFixture[str], argv: list[str]) -> None:
    assert run([*argv, "--json"]) == 0

    assert isinstance(json.loads(capsys.readouterr().out), dict)


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        (["attempt", "show", "99"], 2, "there is no attempt '99'"),
        (["attempt", "show", "\x1b[2Jone"], 2, "no attempt '\\x1b[2Jone'"),
        (["attempt", "show", "1", "--diff"], 5, "does not know the repository"),
        (["champion", "diff"], 5, "does not know the repository"),
        (["graph", "--at", "99999"], 2, "has no revision 99999"),
        (["graph", "--json", "--format", "mermaid"], 2, "exclude each other"),
        (["verify", "--goal-id", "nowhere"], 2, "there is no goal 'nowhere'"),
    ],
)
def test_bad_input_is_named_with_its_exit_code(
    capsys: pytest.CaptureFixture[str], argv: list[str], code: int, says: str
) -> None:
    assert run(argv) == code

    out, err = capsys.readouterr()
    shown = out if "--json" in argv else err
    assert says in shown.replace("\\\\", "\\")
    assert "Traceback" not in out + err


def test_reading_changes_nothing_in_the_store(shared: Scenario, redis_client: redis.Redis) -> None:
    goal_id = shared.goal_id
    before = snapshot(redis_client, goal_id)

    for argv in (["verify"], ["graph"], ["report"], ["attempt", "list"], ["champion", "show"]):
        assert run(argv) == 0

    assert snapshot(redis_client, goal_id) == before


def test_a_user_without_write_permission_can_read(
    shared: Scenario,
    redis_client: redis.Redis,
    server_url: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    user = f"reader-{shared.goal_id}"
    redis_client.acl_setuser(
        user, enabled=True, passwords=["+secret"], keys=["*"], categories=["+@read", "+@connection"]
    )
    redis_client.execute_command("ACL", "SETUSER", user, "+info", "+time")  # type: ignore[no-untyped-call]
    path = server_url.removeprefix("unix://")
    try:
        code = run(["verify", "--store", f"unix://{user}:secret@{path}"])
        assert (code, capsys.readouterr().err) == (0, "")
    finally:
        redis_client.acl_deluser(user)


@pytest.mark.usefixtures("place", "own")
def test_verify_names_an_altered_event_and_exits_six(
    redis_client: redis.Redis, goal_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fields = {"type": "boundary_noted", "body": "{}"}
    entry_id = redis_client.xadd(keys.events(goal_id, Stream.CURATOR), dict(fields))  # type: ignore[arg-type]

    assert run(["verify", "--json"]) == 6
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is False
    assert [each["entry_id"] for each in found["violations"]] == [entry_id]

    assert run(["verify"]) == 6
    assert str(entry_id) in capsys.readouterr().out


@pytest.mark.usefixtures("place")
def test_a_goal_that_is_not_done_exits_one_and_reports_its_gap(
    redis_client: redis.Redis, goal_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Scenario(redis_client, goal_id).open().play(limit=7)

    assert run(["verify"]) == 1
    assert run(["verify", "--records"]) == 0
    assert "not done (iterate)" in capsys.readouterr().out
    assert run(["report", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "final_report.md" not in found["files"]


@pytest.mark.usefixtures("shared")
def test_a_report_never_goes_over_an_earlier_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = []
    for _ in range(2):
        assert run(["report", "--json"]) == 0
        folders.append(json.loads(capsys.readouterr().out)["folder"])
    assert [Path(folder).name for folder in folders] == ["report-1", "report-2"]

    out = tmp_path / "mine"
    assert run(["report", "--out", str(out)]) == 0
    written = {path.name: path.read_bytes() for path in out.iterdir()}
    assert set(written) == {
        "report.md",
        "research.md",
        "research_log.md",
        "results.tsv",
        "final_report.md",
    }
    assert run(["report", "--out", str(out)]) == 2
    assert {path.name: path.read_bytes() for path in out.iterdir()} == written
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_report_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        write_new(tmp_path, _Broken({"a.md": "x", "b.md": "y"}))

    assert list(tmp_path.iterdir()) == []


class _Broken(dict[str, str]):
    def items(self):  # type: ignore[no-untyped-def] # noqa: ANN202 - a test's stand-in
        yield "a.md", "x"
        raise ZeroDivisionError


@pytest.mark.usefixtures("place")
def test_diffs_come_from_the_repository_and_leave_it_as_it_was(  # noqa: PLR0917 - fixtures
    redis_client: redis.Redis,
    goal_id: str,
    store_home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    repository = tmp_path / "repo"
    repository.mkdir()
    git(repository, "init", "-q")
    (repository / "solution.py").write_text("answer = 'base'\n")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "base")
    commits: dict[str, str] = {"base": git(repository, "rev-parse", "HEAD")}

    def commit_of(name: str) -> str:
        if name not in commits:
            (repository / "solution.py").write_text(f"answer = {name!r}\n")
            git(repository, "commit", "-qam", name)
            commits[name] = git(repository, "rev-parse", "HEAD")
        return commits[name]

    monkeypatch.setattr(scenarios, "commit_of", commit_of)
    Scenario(redis_client, goal_id).open().play()
    folder = store_home / "goals" / goal_id
    folder.mkdir(parents=True)
    (folder / "goal.json").write_text(json.dumps({"repository": str(repository)}))
    marker = tmp_path / "ran"
    git(repository, "config", "diff.external", f"touch {marker}")
    before = {path: path.read_bytes() for path in repository.rglob("*") if path.is_file()}

    assert run(["champion", "diff"]) == 0
    shown = capsys.readouterr().out
    assert "-answer = 'base'" in shown
    assert "+answer = 'block minima 10'" in shown
    assert run(["champion", "diff", "--stat", "--json"]) == 0
    assert "solution.py" in json.loads(capsys.readouterr().out)["diff"]
    assert run(["attempt", "show", "1", "--diff"]) == 0
    assert "+answer = 'product 1'" in capsys.readouterr().out
    assert not marker.exists()
    assert {path: path.read_bytes() for path in repository.rglob("*") if path.is_file()} == before
