"""The bounded capture of output."""

import io

import pytest

from roles.processes.capture import Spool, log_writer


def test_memory_stays_bounded_while_everything_is_counted() -> None:
    spool = Spool(kept=100)
    for number in range(10_000):
        spool.feed(b"%09d\n" % number)
        assert len(spool.head) + len(spool.tail) <= 300
    assert spool.total == 100_000
    text = spool.text()
    assert text.startswith("000000000\n")
    assert text.endswith("000009999\n")
    assert "\n[99800 bytes left out]\n" in text


@pytest.mark.parametrize("size", [0, 1, 99, 100, 101, 199, 200])
def test_what_fits_is_given_whole(size: int) -> None:
    data = bytes(97 + n % 26 for n in range(size))
    whole, single = Spool(kept=100), Spool(kept=100)
    whole.feed(data)
    for n in range(size):
        single.feed(data[n : n + 1])
    assert whole.text() == single.text() == data.decode()


def test_a_character_across_the_seam_is_whole_where_nothing_is_left_out() -> None:
    spool = Spool(kept=3)
    spool.feed("ab\u00e9c".encode())
    assert spool.text() == "ab\u00e9c"


def test_the_log_is_cut_at_its_limit_and_says_so_once() -> None:
    log = io.BytesIO()
    write = log_writer(log, limit=5)
    for part in (b"abc", b"def", b"ghi"):
        write(part)
    assert log.getvalue() == b"abcde\n[log cut here: it has reached its limit]\n"
    log_writer(None)(b"nothing to write to")


def test_a_log_that_cannot_be_written_does_not_end_the_run() -> None:
    with open("/dev/full", "wb", buffering=0) as full:  # noqa: PTH123 - unbuffered, to fail at once
        write = log_writer(full)
        write(b"x")
        write(b"y")
