"""The scope check on names alone: what globs cover, and what an attempt may not touch."""

import pytest

from roles.workspace.scope import Change, check_scope, command_files, matches


def why(path: str, *, editable: str = "src/**", protected: str = "eval/**") -> str:
    report = check_scope([Change(status="M", path=path)], [editable], [protected])
    assert report.clean == (not report.violations)
    return report.violations[0].why if report.violations else ""


@pytest.mark.parametrize(
    ("glob", "inside", "outside"),
    [
        ("a.py", ["a.py"], ["b/a.py", "a.pyc", "A.py", "xa.py"]),
        ("src/", ["src/a", "src/b/c"], ["src", "src-evil/a", "x/src/a"]),
        ("src/**", ["src/a", "src/b/c"], ["src", "srcs/a"]),
        ("src", ["src", "src/a/b"], ["src-evil", "src.py"]),
        ("*.py", ["a.py", ".py"], ["a/b.py", "a.py/b"]),
        ("**/*.py", ["a.py", "a/b/c.py"], ["a.txt"]),
        ("src/**/t.py", ["src/t.py", "src/a/b/t.py"], ["src/xt.py", "t.py"]),
        ("**", ["a", "a/b"], []),
        ("d?g", ["dog"], ["d/g", "doog"]),
        ("[ab].c", ["a.c", "b.c"], ["c.c", "[ab].c"]),
        ("[!ab].c", ["c.c"], ["a.c", "/.c"]),
        ("a+b(1).py", ["a+b(1).py"], ["aab1.py"]),
        ("./src/*", ["src/a"], ["src/a/b"]),
    ],
)
def test_a_glob_covers_what_the_module_says(
    glob: str, inside: list[str], outside: list[str]
) -> None:
    assert [path for path in inside if not matches(path, [glob])] == []
    assert [path for path in outside if matches(path, [glob])] == []


def test_an_edit_in_scope_is_clean_and_listed() -> None:
    report = check_scope([Change(status="M", path="src/a.py")], ["src/"], ["eval/"])
    assert report.clean
    assert report.changed == ("src/a.py",)
    assert report.violations == ()


def test_protected_wins_over_editable() -> None:
    assert why("src/x.py", editable="**", protected="src/x.py") == "is protected"
    assert why("eval/run.py", editable="**") == "is protected"
    report = check_scope([Change(status="M", path="labmates.toml")], ["**"], [], ["labmates.toml"])
    assert [v.why for v in report.violations] == ["is protected"]


def test_everything_that_is_not_editable_is_out_of_scope() -> None:
    assert why("README.md") == "is not editable"
    assert why("src-evil/a.py") == "is not editable"


def test_both_sides_of_a_rename_count_and_a_copy_leaves_its_source_alone() -> None:
    away = Change(status="R", old_path="eval/a.py", path="src/a.py")
    into = Change(status="R", old_path="src/a.py", path="eval/a.py")
    for change in (away, into):
        report = check_scope([change], ["src/"], ["eval/"])
        assert [(v.path, v.why) for v in report.violations] == [("eval/a.py", "is protected")]
        assert report.changed == ("eval/a.py", "src/a.py")
    copy = Change(status="C", old_path="eval/a.py", path="src/a.py")
    assert check_scope([copy], ["src/"], ["eval/"]).clean


def test_deleting_a_protected_file_is_a_violation() -> None:
    gone = Change(status="D", path="eval/test.py", new_mode="000000")
    assert not check_scope([gone], ["**"], ["eval/"]).clean


def test_field_case_146_links_submodules_and_mode_changes_are_violations_even_in_scope() -> None:
    def first(**modes: str) -> str:
        change = Change(status="T", path="src/l", **modes)
        return check_scope([change], ["src/"], []).violations[0].why

    assert first(new_mode="120000") == "is a symbolic link"
    assert first(new_mode="160000") == "is a submodule"
    assert first(new_mode="100755") == "changes its mode from 100644 to 100755"
    added = Change(status="A", path="src/run", old_mode="000000", new_mode="100755")
    assert check_scope([added], ["src/"], []).clean
    removed = Change(status="D", path="src/l", old_mode="120000", new_mode="000000")
    assert check_scope([removed], ["src/"], []).clean


@pytest.mark.parametrize(
    "path",
    [
        "Eval/run.py",
        "EVAL/run.py",
        "eval/RUN.py",
        "e\u200dval/run.py",
        "\uff45val/run.py",
        "\U0001d404val/run.py",
    ],
)
def test_a_name_that_may_be_taken_for_a_protected_one_is_a_violation(path: str) -> None:
    assert why(path, editable="**", protected="eval/run.py") == "may be taken for a protected file"


def test_composed_and_decomposed_names_are_the_same_name() -> None:
    got = why("cafe\u0301.py", editable="**", protected="caf\u00e9.py")
    assert got == "may be taken for a protected file"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("src/../eval/run.py", "is no path inside the repository"),
        ("/etc/passwd", "is no path inside the repository"),
        ("src//a", "is no path inside the repository"),
        ("src/./a", "is no path inside the repository"),
        ("src/.git/config", "is a name of git's own"),
        ("src/.GIT/hooks/x", "is a name of git's own"),
        ("src/.git /x", "is a name of git's own"),
        ("src/.g\u200cit/x", "is a name of git's own"),
        ("src/git~1/x", "is a name of git's own"),
        ("src/\udcff.py", "is a name that is not UTF-8"),
        ("src/a\nb", "is a name with control characters"),
    ],
)
def test_a_name_that_no_change_needs_is_refused_wherever_it_is(path: str, reason: str) -> None:
    assert why(path, editable="**", protected="") == reason


@pytest.mark.parametrize(
    "name",
    ["conftest.py", "sitecustomize.py", "usercustomize.py", "x.pth", "pytest.ini", "tox.ini",
     ".gitattributes", ".gitmodules", "Conftest.py"],
)  # fmt: skip
def test_what_loads_by_itself_is_named_as_such_outside_the_scope(name: str) -> None:
    assert why(f"deep/{name}") == "is loaded without being named, and is not editable"
    assert why(f"src/{name}") == ""


def test_violations_come_once_per_path_and_in_order() -> None:
    changes = [Change(status="M", path=path) for path in ("z", "eval/a", "z", "b")]
    report = check_scope(changes, ["src/"], ["eval/"])
    assert [v.path for v in report.violations] == ["b", "eval/a", "z"]


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("python evaluate.py --split dev", {"evaluate.py"}),
        ("python ./evaluate.py", {"evaluate.py"}),
        ("python -m bench.run", {"bench/run.py"}),
        ("python -m bench", {"bench/__init__.py", "bench/run.py"}),
        ("pytest tests", {"tests/test_a.py", "tests/test_b.py"}),
        ("pytest tests/test_a.py::test_x", {"tests/test_a.py"}),
        ("run --config=conf.toml", {"conf.toml"}),
        ("sh -c 'python evaluate.py && cat conf.toml; true'", {"evaluate.py", "conf.toml"}),
        ("python 'evaluate.py", set()),
        ("python evaluate.py 'open", {"evaluate.py"}),
        ("ls .", set()),
    ],
)
def test_files_that_a_command_names_are_found(command: str, named: set[str]) -> None:
    tree = [
        "evaluate.py", "conf.toml", "bench/run.py", "bench/__init__.py",
        "tests/test_a.py", "tests/test_b.py", "solution.py",
    ]  # fmt: skip
    assert command_files(command, tree) == named
