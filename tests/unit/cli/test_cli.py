"""The frame of the program: help, version, errors, faults, broken pipes, the cold path's gate."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from contracts.errors import LabmatesError, RefusedError, StoreUnreachableError
from roles import cli, group
from roles.render import error_document, error_text
from tests.unit.cli.program import SCRIPT, run

ERROR = RefusedError(
    "todo_0013 is claimed by executor-1, not by executor-2",
    reason="not_claimed",
    missing="a live claim of executor-2",
    facts={
        "item": "todo_0013  hyp_0013  attempt_running, version 4, fence 37",
        "asked": "attempt_running -> evidence_recorded, as executor",
        "missing": "a live claim of executor-2",
    },
    mend=[["labmates", "quota", "should-run", "--agent-id", "executor-2"]],
)


def loaded_by(*words: str) -> set[str]:
    """Tell which modules a run of the program has imported at its end."""
    code = (
        "import sys, atexit\n"
        "from roles import cli\n"
        f"code = cli.run({list(words)!r})\n"
        "print(*sys.modules, sep='\\n', file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_the_top_help_names_every_command_in_its_group_and_imports_none() -> None:
    text = run("--help").stdout
    person, agent = text.split("For the agent in a lane:")
    for name in cli.COMMANDS:
        assert f"\n  {name} " in (agent if name in cli.FOR_AGENTS else person)
    assert max(map(len, text.splitlines())) <= 80
    homes = {target.partition(":")[0] for target in cli.COMMANDS.values()}
    assert loaded_by("--help").isdisjoint({*homes, "redis", "pydantic", "rich"})


def test_every_command_of_the_table_has_a_summary() -> None:
    assert set(cli.SUMMARIES) == set(cli.COMMANDS)
    assert set(cli.FOR_AGENTS) <= set(cli.COMMANDS)


def test_the_version_is_that_of_the_package() -> None:
    assert run("--version").stdout == "labmates 0.1.0\n"


def test_no_command_at_all_shows_the_help_and_is_wrong_usage() -> None:
    assert "For the person:" in run(code=2).stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nope",), "labmates: no such command 'nope'"),
        (("store", "nope"), "labmates: no such command 'nope'"),
        (("status", "--nope"), "labmates: no such option '--nope'"),
        (("quota", "should-run"), "labmates: no agent is named"),
        (("quota", "should-run", "--agent-id"), "labmates: option '--agent-id' requires"),
        (("quota", "should-run", "--agent-id", "a", "--role", "boss"), "labmates: invalid value"),
        (("quota", "should-run", "--agent-id", "a", "extra"), "labmates: got unexpected extra"),
        (("gate", "reject", "gate_1"), "labmates: missing option '--reason'"),
    ],
)
def test_wrong_usage_exits_2_with_one_message_and_the_help_to_read(
    words: tuple[str, ...], said: str
) -> None:
    done = run(*words, code=2)
    assert done.stdout == ""
    assert done.stderr.startswith(said)
    assert "\nMend       " in done.stderr
    found = json.loads(run(*words, "--json", code=2).stdout)["error"]
    assert found["code"] == "usage"
    assert set(found) == {"code", "message", "hint", "details", "mend"}


def test_an_error_reads_as_the_terminal_page_shows() -> None:
    assert error_text(ERROR) == (
        "labmates: todo_0013 is claimed by executor-1, not by executor-2\n"
        "item       todo_0013  hyp_0013  attempt_running, version 4, fence 37\n"
        "asked      attempt_running -> evidence_recorded, as executor\n"
        "missing    a live claim of executor-2\n"
        "Mend       labmates quota should-run --agent-id executor-2\n"
        "Nothing was written.\n"
    )


def test_an_error_as_json_has_the_same_parts() -> None:
    found = error_document(ERROR)["error"]
    assert found["code"] == "refused"
    assert found["message"] == ERROR.message
    assert found["mend"] == [["labmates", "quota", "should-run", "--agent-id", "executor-2"]]
    assert found["details"] == ERROR.facts | {"reason": "not_claimed", "missing": ERROR.missing}


def test_a_command_to_paste_is_quoted_and_never_wrapped() -> None:
    path = "/a folder/" + "x" * 90
    error = LabmatesError("x", mend=[["ls", path]])
    assert f"\nMend       ls '{path}'\n" in error_text(error)


def test_colour_marks_the_word_and_only_where_it_is_wanted() -> None:
    assert "\x1b[1;31mlabmates:\x1b[0m" in error_text(ERROR, on=True)
    assert "\x1b" not in error_text(ERROR)


def test_control_characters_of_an_error_are_shown_and_not_sent() -> None:
    error = LabmatesError(
        "a\x1b[2J", facts={"b\x07": "c\u202e\nd"}, mend=[["e", "f\r"]], hint="\x9b"
    )
    text = error_text(error)
    assert not any(char in text for char in "\x1b\x07\u202e\r\x9b")
    assert "a\\x1b[2J" in text


def raise_in_schema(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, *, words: tuple[str, ...] = ("schema",)
) -> int:
    """Run a command line whose command raises `error`; gives the exit code."""

    def invoke(argv: object) -> int:
        raise error

    monkeypatch.setattr(group, "invoke", invoke)
    return cli.run(words)


def test_a_fault_of_ours_names_a_report_file_and_shows_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], store_home: Path
) -> None:
    words = ("schema", "--store", "redis://me:hush@host")
    assert raise_in_schema(monkeypatch, ZeroDivisionError("boom"), words=words) == 70
    text = capsys.readouterr().err
    assert text.startswith("labmates: a fault in labmates itself: ZeroDivisionError\n")
    (report,) = (store_home / "faults").iterdir()
    assert str(report) in text
    written = report.read_text()
    assert "Traceback" in written
    assert "hush" not in written
    assert report.stat().st_mode & 0o777 == 0o600


def test_a_fault_whose_report_cannot_be_written_still_exits_70(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LABMATES_HOME", str(tmp_path / "file"))
    assert raise_in_schema(monkeypatch, ValueError("boom"), words=("schema", "--json")) == 70
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "fault"


def test_an_interrupt_exits_130_and_says_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert raise_in_schema(monkeypatch, KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == ""


def test_the_exit_code_is_that_of_the_errors_class(monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (ERROR, StoreUnreachableError("x"), LabmatesError("x")):
        assert raise_in_schema(monkeypatch, error) == error.exit_code


def test_a_reader_that_goes_away_is_no_error() -> None:
    for words in (["roles"], ["schema", "events"], ["--help"]):
        ours, theirs = os.pipe()
        os.close(ours)
        done = subprocess.run(
            [SCRIPT, *words], stdout=theirs, stderr=subprocess.PIPE, text=True, check=False
        )
        os.close(theirs)
        assert (done.returncode, done.stderr) == (0, "")


def test_the_role_map_names_what_each_role_must_not_do() -> None:
    text = run("roles").stdout
    assert "must not   pick winners" in text
    assert max(map(len, text.splitlines())) <= 80
    found = json.loads(run("roles", "--json").stdout)["roles"]
    assert [card["role"] for card in found] == ["curator", "proposer", "executor", "evaluator"]
