"""Every environment variable that the code reads or sets is documented, and no other."""

import ast
import re

from tests.architecture.tree import ROOMS, ROOT, parsed, python_files

NAME = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
PAGE = "docs/reference/environment.md"
# Handed on to git, to child processes or to libraries: not settings of labmates.
FOREIGN = re.compile(r"GIT_|LC_|OMP_|OPENBLAS_|MKL_|NUMEXPR_|PYTHON")


def names_in(tree: ast.AST) -> set[str]:
    """Find the names of variables: ours anywhere, others where the environment is asked for one."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= {name for name in NAME.findall(node.value) if name.startswith("LABMATES_")}
        asked: ast.expr | None = None
        match node:
            case ast.Call(func=func, args=[first, *_]):
                asks = "environ" in (said := ast.unparse(func)) or said.endswith("getenv")
                asked = first if asks else None
            case ast.Subscript(value=value, slice=key) if ast.unparse(value).endswith("environ"):
                asked = key
            case _:
                pass
        if isinstance(asked, ast.Constant) and isinstance(asked.value, str):
            found.add(asked.value)
    return {name for name in found if not FOREIGN.match(name)}


def names_in_code(*tops: str) -> set[str]:
    return {name for path in python_files(*tops) for name in names_in(parsed(path))}


def names_in_docs() -> set[str]:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    return set(re.findall(r"^\| `([A-Z_]+)` \|", text, re.MULTILINE))


def test_every_variable_of_the_code_is_documented() -> None:
    known = {"PATH", "HOME", "TMPDIR", "LANG", "TZ", "TERM"}
    assert names_in_code(*ROOMS) - known - names_in_docs() == set()


def test_every_documented_variable_is_one_of_the_code() -> None:
    by_libraries = {"NO_COLOR"}  # rich and click read it
    assert names_in_docs() - by_libraries - names_in_code(*ROOMS, "tests") == set()


def test_the_check_sees_each_way_to_ask() -> None:
    source = (
        'os.environ["A_B"]; os.environ.get("C_D"); getenv("E_F"); '
        'click.option("--x", envvar="LABMATES_G"); run(env={"LABMATES_H": "1"})'
    )
    assert names_in(ast.parse(source)) == {"A_B", "C_D", "E_F", "LABMATES_G", "LABMATES_H"}
