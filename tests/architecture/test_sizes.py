"""Small files: 400 lines of source, 600 of tests."""

import pytest

from tests.architecture.tree import ROOMS, ROOT, listed, python_files

# Files that may be longer, with the reason. Starts empty and only shrinks.
EXCEPTIONS: dict[str, str] = {}


def longer_than(limit: int, *tops: str) -> list[str]:
    paths = python_files(*tops) + [
        path for path in listed() if path.suffix == ".lua" and path.parts[0] in tops
    ]
    lines = {str(path): (ROOT / path).read_bytes().count(b"\n") for path in paths}
    return [
        f"{name}: {count} lines"
        for name, count in lines.items()
        if count > limit and name not in EXCEPTIONS
    ]


@pytest.mark.parametrize(
    ("limit", "tops"), [(400, ROOMS), (600, ("tests",))], ids=["source", "tests"]
)
def test_no_file_is_longer_than_its_limit(limit: int, tops: tuple[str, ...]) -> None:
    assert longer_than(limit, *tops) == []


def test_no_line_of_lua_is_longer_than_120_characters() -> None:
    long = [
        f"{path}:{number}"
        for path in listed()
        if path.suffix == ".lua"
        for number, line in enumerate((ROOT / path).read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > 120
    ]
    assert long == []


def test_the_count_finds_long_files() -> None:
    assert longer_than(1, *ROOMS) != []


def test_each_exception_still_exists_and_is_still_needed() -> None:
    for name in EXCEPTIONS:
        path = ROOT / name
        assert path.is_file()
        assert path.read_bytes().count(b"\n") > (600 if name.startswith("tests/") else 400)
