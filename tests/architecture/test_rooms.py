"""The rooms and their arrows; each rule is shown red by a planted breach."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.tree import ROOMS, ROOT, listed, parsed, python_files

ARROWS = "Rooms point one way"
REDIS = "Only contracts.store speaks to the server"
READ_ONLY = "The projection only reads"
INSIDE = "Inside contracts the store rests on the pure modules"

# (rule that must break, [(file, text appended to it), ...])
BREACHES = {
    "roles_reach_projection": (ARROWS, [("roles/planted.py", "import projection\n")]),
    "projection_reaches_roles": (ARROWS, [("projection/planted.py", "import roles\n")]),
    "projection_reaches_demo": (ARROWS, [("projection/planted.py", "import demo\n")]),
    "quota_reaches_roles": (ARROWS, [("quota/planted.py", "from roles import drivers\n")]),
    "contracts_reach_quota": (ARROWS, [("contracts/planted.py", "import quota\n")]),
    "an_import_inside_a_function_counts": (
        ARROWS,
        [("quota/planted.py", "def late() -> None:\n    import roles\n")],
    ),
    "roles_speak_redis": (REDIS, [("roles/planted.py", "import redis\n")]),
    "quota_speaks_redis_for_a_type_only": (
        REDIS,
        [
            (
                "quota/planted.py",
                "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from redis import Redis\n",
            )
        ],
    ),
    "contracts_outside_the_store_speak_redis": (
        REDIS,
        [("contracts/planted.py", "import redis.exceptions\n")],
    ),
    "demo_speaks_hiredis": (REDIS, [("demo/planted.py", "import hiredis\n")]),
    "a_git_wrapper_needs_a_step": (
        "Inside roles",
        [("roles/workspace/planted.py", "import roles.steps.lane\n")],
    ),
    "a_step_needs_a_lane": ("Inside roles", [("roles/steps/planted.py", "import roles.lanes\n")]),
    "a_model_needs_the_store": (INSIDE, [("contracts/models.py", "import contracts.store.home\n")]),
    "a_new_file_stands_in_no_layer": (INSIDE, [("contracts/planted.py", "")]),
    "projection_writes": (
        READ_ONLY,
        [("projection/planted.py", "import contracts.store.writer\n")],
    ),
    "projection_writes_through_a_chain": (
        READ_ONLY,
        [
            ("quota/planted.py", "from contracts.store import writer\n"),
            ("projection/planted.py", "import quota.planted\n"),
        ],
    ),
}


def copy_rooms(to: Path) -> None:
    for path in [*python_files(*ROOMS), Path(".importlinter")]:
        target = to / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, target)


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_rooms_keep_every_import_rule(tmp_path: Path) -> None:
    copy_rooms(tmp_path)
    done = lint_imports(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


@pytest.mark.parametrize("name", sorted(BREACHES))
def test_a_planted_breach_breaks_its_rule(tmp_path: Path, name: str) -> None:
    rule, plants = BREACHES[name]
    copy_rooms(tmp_path)
    for file, text in plants:
        with (tmp_path / file).open("a", encoding="utf-8") as planted:
            planted.write(text)
    done = lint_imports(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    broken = [line for line in done.stdout.splitlines() if " BROKEN" in line]
    assert any(rule in line for line in broken), done.stdout


def test_the_root_has_the_fixed_folders_and_no_other() -> None:
    folders = {path.parts[0] for path in listed() if len(path.parts) > 1}
    assert folders - {".ci"} <= {*ROOMS, "tests", "docs"}


def test_every_room_is_a_typed_package() -> None:
    for room in ROOMS:
        assert (ROOT / room / "__init__.py").is_file()
        assert (ROOT / room / "py.typed").is_file()


def test_no_import_is_relative() -> None:
    relative = [
        f"{path}:{node.lineno}"
        for path in python_files(*ROOMS, "tests")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert relative == []


def test_no_room_imports_the_tests() -> None:
    reaching = [
        f"{path}:{node.lineno}"
        for path in python_files(*ROOMS)
        for node in ast.walk(parsed(path))
        if (
            isinstance(node, ast.ImportFrom)
            and (node.module or "").split(".", maxsplit=1)[0] == "tests"
        )
        or (
            isinstance(node, ast.Import)
            and any(alias.name.split(".", maxsplit=1)[0] == "tests" for alias in node.names)
        )
    ]
    assert reaching == []


def test_a_package_file_holds_no_logic() -> None:
    """An `__init__.py` holds a docstring, imports and `__all__`: importing a room is cheap."""
    for path in python_files(*ROOMS):
        if path.name != "__init__.py":
            continue
        for node in parsed(path).body:
            allowed = isinstance(node, (ast.Expr, ast.Import, ast.ImportFrom)) or (
                isinstance(node, (ast.Assign, ast.AnnAssign)) and "__all__" in ast.unparse(node)
            )
            assert allowed, f"{path}:{node.lineno} {ast.unparse(node)[:60]}"
