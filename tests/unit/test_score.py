"""A score is a finite number that was said plainly, or there is none."""

import pytest

from roles.measuring.score import NoScore, Score, parse_score


def from_stdout(text: str) -> Score | NoScore:
    return parse_score(text, None, "stdout")


def from_file(text: str) -> Score | NoScore:
    return parse_score("0.1", text, "file")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.95\n", 0.95),
        ("speedup 3.5\n", 3.5),
        ("score: 0.9", 0.9),
        ("val/score=-1.5e-3\n", -0.0015),
        ("epoch 1 0.1\nepoch 2 0.2\n", 0.2),
        ("+.5", 0.5),
        ("42", 42.0),
        ("0.9\nsaved run2 in model.v1\n", 0.9),
        ("0.9 ms\n", 0.9),
        ("\ufffd\ufffd score=0.5", 0.5),
    ],
)
def test_the_last_number_on_stdout_is_the_score(text: str, value: float) -> None:
    assert from_stdout(text) == Score(value)


@pytest.mark.parametrize("text", ["", "\n \n", "no digits here\n", "run2"])
def test_no_number_is_no_score(text: str) -> None:
    found = from_stdout(text)
    assert isinstance(found, NoScore)
    assert found.label == "no number"


@pytest.mark.parametrize(
    ("text", "offending"),
    [
        ("score: 0,95", "0,95"),
        ("1,234.5", "1,234.5"),
        ("95%", "95%"),
        ("12/20", "12/20"),
        ("score=0.9ms", "score=0.9ms"),
        ("score=0.9 (0.1)", "(0.1)"),
        ("1\u00a0234.5", "1\u00a0234.5"),
        ("0.9.", "0.9."),
        ("0x10", "0x10"),
        ("took 12:30", "12:30"),
    ],
)
def test_field_case_76_a_doubtful_number_is_refused_with_its_text(
    text: str, offending: str
) -> None:
    assert from_stdout(f"0.1\n{text}\n") == NoScore("not a number", offending)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"score":0.1,"score":0.9}', "'score' stands there twice"),
        ('{"score":true}', "score must be a number, not true"),
        ('{"score":"0.9"}', 'score must be a number, not "0.9"'),
        ('{"score":1e999}', "1e999 is not finite"),
        ('{"score":NaN}', "NaN is no JSON number"),
        ('{"score":-Infinity}', "-Infinity is no JSON number"),
        ('{"score":1' + "0" * 350 + "}", "is not finite"),
        ('{"score":1' + "0" * 5000 + "}", "is not finite"),
        ('{"pass":true,"score":null}', "score must be a number, not null"),
        ('{"pass":true}', "score is missing"),
        ('{"pass":1,"score":2}', "pass must be true or false, not 1"),
        ('{"score":2,"label":3}', "label must be text"),
        ('{"score":2,"detail":[]}', "detail must be an object"),
        ('{"score":2,"bonus":1}', "unknown key 'bonus'"),
        ("[0.9]", "an object is expected"),
        ("0.9", "an object is expected"),
    ],
)
def test_field_case_77_odd_json_is_refused_each_for_its_own_reason(text: str, reason: str) -> None:
    marked = [from_stdout(f"labmates: {text}\n")] if text.startswith("{") else []
    for found in [from_file(text), *marked]:
        assert isinstance(found, NoScore)
        assert found.label == "bad result"
        assert reason in found.detail


@pytest.mark.parametrize("text", ["1_000", "\u0660\u066b\u0669", "\u0661", "1e5_0", "½"])
def test_field_case_77_digits_that_only_python_reads_are_refused(text: str) -> None:
    assert from_stdout(text) == NoScore("not a number", text)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"score": 1} trailing'])
def test_what_is_no_json_is_no_score(text: str) -> None:
    found = from_file(text)
    assert isinstance(found, NoScore)
    assert found.label == "no JSON"


def test_field_case_79_carriage_returns_colours_and_nul_do_not_glue_values() -> None:
    assert from_stdout("epoch 1 score=0.1\repoch 2 score=0.2\n") == Score(0.2)
    assert from_stdout("\x1b[32mscore=0.9\x1b[0m\n") == Score(0.9)
    assert from_stdout("\x1b]0;title 7\x07score=0.9") == Score(0.9)
    assert from_stdout('0%\rlabmates: {"score": 2}\r\n') == Score(2.0)
    assert from_stdout("0.\x009") == NoScore("not a number", "0.\x009")


@pytest.mark.parametrize("text", ["nan", "NaN", "inf", "-inf", "x=-Infinity", "1e999", "-1e999"])
def test_field_case_86_nan_and_infinity_are_no_score(text: str) -> None:
    assert from_stdout(f"0.5\n{text}\n") == NoScore("not finite", text)


def test_a_marked_line_wins_over_the_last_number() -> None:
    text = 'labmates: {"score": 2, "pass": true, "label": "ok", "detail": {"n": 3}}\ntook 3.5\n'
    assert from_stdout(text) == Score(2.0, passed=True, label="ok", detail={"n": 3})


def test_two_different_marked_lines_are_no_score_and_equal_ones_are_one() -> None:
    line = 'labmates: {"score": 1}\n'
    assert from_stdout(line * 2) == Score(1.0)
    found = from_stdout(line + 'labmates: {"score": 2}\n')
    assert found == NoScore("two results", '{"score": 1} and {"score": 2}')


def test_only_the_named_channel_is_read() -> None:
    assert parse_score("0.5", '{"score": 2}', "file") == Score(2.0)
    assert parse_score("0.5", '{"score": 2}', "stdout") == Score(0.5)
    found = parse_score("0.5", None, "file")
    assert isinstance(found, NoScore)
    assert found.label == "no result file"


def test_a_failure_that_the_command_reports_keeps_its_own_label() -> None:
    found = from_file('{"pass": false, "score": null, "label": "0/12 exact", "detail": {"n": 0}}')
    assert found == NoScore("0/12 exact", '{"n": 0}', said=True)
    assert from_file('{"pass": false, "score": 2}') == Score(2.0, passed=False)
