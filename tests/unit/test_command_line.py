"""Commands of a contract are argument lists; no shell reads them."""

import pytest

from contracts.errors import PreconditionError, UsageError
from roles.measuring.command_line import argv_of, require_program, script_of


def test_a_leading_python_is_the_contracts_interpreter() -> None:
    assert argv_of("python bench.py 'a b'", python="/opt/py") == ["/opt/py", "bench.py", "a b"]
    assert argv_of("env python", python="/opt/py") == ["env", "python"]


@pytest.mark.parametrize(
    "command", ["crash | tee log", "a && b", "a;b", "a > out", "echo $(x)", "a # ; b"]
)
def test_field_case_74_a_pipeline_is_refused_since_it_hides_an_exit_code(command: str) -> None:
    with pytest.raises(UsageError, match="needs a shell") as caught:
        argv_of(command, python="python3")
    assert "pipefail" in caught.value.hint


def test_operators_inside_quotes_are_text() -> None:
    argv = argv_of('bash -o pipefail -c "a | b"', python="python3")
    assert argv == ["bash", "-o", "pipefail", "-c", "a | b"]


@pytest.mark.parametrize("command", ["", "   ", "python 'x", "a\0b"])
def test_what_is_no_command_is_refused(command: str) -> None:
    with pytest.raises(UsageError):
        argv_of(command, python="python3")


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python bench.py --n 3", "bench.py"),
        ("python -W error -B ./bench.py", "bench.py"),
        ("python -m bench", None),
        ('python -c "print(1)"', None),
        ("bash -o pipefail -c 'a | b'", None),
        ("./run.sh x.py", "run.sh"),
        ("tools/run", "tools/run"),
        ("/usr/bin/true x", None),
        ("pytest tests", None),
        ("bash run.sh", "run.sh"),
    ],
)
def test_the_script_of_a_command_is_found(command: str, script: str | None) -> None:
    assert script_of(argv_of(command, python="python3")) == script


def test_a_program_that_is_not_there_is_named() -> None:
    require_program(["sh"], what="evaluation.dev")
    require_program(["./in-the-tree"], what="evaluation.dev")
    with pytest.raises(PreconditionError, match=r"'no-such-program' of evaluation\.dev"):
        require_program(["no-such-program"], what="evaluation.dev")
