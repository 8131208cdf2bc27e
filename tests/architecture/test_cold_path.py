"""What is asked often must start fast: the cold path loads no heavy library."""

import importlib.util
import subprocess
import sys

import pytest

from tests.architecture.tree import ROOT

HEAVY = (
    "pydantic",
    "redis",
    "click",
    "rich",
    "structlog",
    "tenacity",
    "psutil",
    "asyncio",
)


def loaded_by(*modules: str) -> set[str]:
    """Tell which modules a fresh interpreter has after importing `modules`."""
    code = f"import sys, {', '.join(modules)}; print(*sys.modules, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return set(done.stdout.split())


def test_importing_contracts_loads_no_library() -> None:
    assert loaded_by("contracts", "contracts.errors").isdisjoint(HEAVY)


def test_importing_the_rooms_loads_no_library() -> None:
    assert loaded_by("contracts", "quota", "roles", "projection", "demo").isdisjoint(HEAVY)


@pytest.mark.parametrize(
    "module", ["quota.cold", "contracts.store.wire", "contracts.store.home", "roles.cli"]
)
def test_a_module_of_the_cold_path_loads_no_heavy_library(module: str) -> None:
    assert importlib.util.find_spec(module) is not None
    assert loaded_by(module).isdisjoint(HEAVY)


def test_the_check_sees_a_heavy_library() -> None:
    assert not loaded_by("contracts.ids").isdisjoint(HEAVY)
