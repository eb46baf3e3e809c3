"""Lines as progress: how numbers are printed and found, what is refused, and what a pattern may cost."""

import json
from math import inf, isnan, nan

import pytest

from beamer.engines.local.pattern import ProgressPattern, SlowPatternError
from beamer.engines.local.supervisor.lines import MAX_LINE, PrintedLine, ProgressLine, RefusedLine, parse
from beamer.engines.local.supervisor.numbers import number
from beamer.errors import InputError

OF_DIGITS = r"(?P<iteration>\d+)/\d+.*loss: (?P<loss>[\d.]+)"
OF_WORDS = r"(?P<iteration>\d+)/\d+.*loss: (?P<loss>\S+)"
SLOW = r"((a|aa)+$)|(?P<iteration>\d+)/\d+.*loss: (?P<loss>\S+)"


def read(text: str, pattern: str = "") -> ProgressLine | None:
    return parse(PrintedLine(text, length=len(text)), ProgressPattern(pattern) if pattern else None)


def refusal(text: str, pattern: str = "") -> RefusedLine:
    with pytest.raises(RefusedLine) as refused:
        read(text, pattern)
    return refused.value


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"iteration": 3, "loss": 0.5}', ProgressLine(3.0, False, 0.5)),
        (' {"iteration": 3, "loss": 0.5, "accuracy": 0.25, "lr": 1} ', ProgressLine(3.0, False, 0.5, 0.25)),
        ('{"samples": 96, "loss": "0.5", "gradient_sqr": 2, "gradient_var": 3}', ProgressLine(96.0, True, 0.5, None, 2.0, 3.0)),
        ("3", None),
        ("", None),
        ("Epoch 3, loss 0.5", None),
    ],
)
def test_lines_of_json(text: str, line: ProgressLine | None) -> None:
    assert read(text) == line


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"iteration": 3}', 'a line of progress: got .*"iteration": 3.*, expected loss, as in'),
        ('{"loss": 3}', 'a line of progress: got .*"loss": 3.*, expected iteration, as in'),
        ('{"iteration": 3, "loss": 0.5, "loss": 0.1}', "a line of progress: got '\"loss\"', expected each key once"),
        ('{"iteration": 3, "loss": nan, "of": {"a": 1, "a": 2}}', "expected each key once"),
        ('{"iteration": "many", "loss": 0.5}', "iteration: got 'many', expected a number"),
        ('{"iteration": Infinity, "loss": 0.5}', "iteration: got inf, expected a finite number"),
        (f'{{"iteration": {10**400}, "loss": 0.5}}', "iteration: got 1000"),
        ('{"iteration": true, "loss": 0.5}', "iteration: got True"),
        ('{"iteration": 3, "loss":', "a line of progress: got .*expected JSON such as"),
        ("{'iteration': 3, 'loss': 0.5}", "a line of progress: got .*expected JSON such as"),
        ('{"a":' * 200_000, r"a line of progress: got .*characters\)', expected JSON"),
    ],
)
def test_what_looks_like_progress_and_is_none_is_named(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(text)


def test_a_pattern_that_finds_no_number_is_named() -> None:
    with pytest.raises(InputError, match="loss: got 'low', expected a number"):
        read("step 7 loss low", r"step (?P<iteration>\d+) loss (?P<loss>\w+)")


@pytest.mark.parametrize(("shown", "step"), [("1_003/2_000", 1003.0), ("1e3/5e3", 1000.0), ("12/20", 12.0)])
@pytest.mark.parametrize("loss", ["0.5", "nan", "-0.5"])
def test_a_pattern_finds_whole_steps(shown: str, step: float, loss: str) -> None:
    line = read(f"at {shown} - loss: {loss}", OF_DIGITS)
    assert line is not None
    assert line.step == step


def test_a_signed_step_is_no_other_step() -> None:
    line = read("at -1/20 - loss: 0.5", OF_DIGITS)
    assert line is not None
    assert line.step == -1.0
    assert read("at -1/20 - loss: nan", OF_DIGITS) is None


def test_a_refused_loss_has_its_whole_step() -> None:
    assert refusal("2_000/2_000 - loss: n/a", OF_DIGITS).step == 2000.0


def test_other_json_is_not_meant_as_progress() -> None:
    assert refusal("{'iteration': 3}").is_meant
    assert not refusal('{"level": "info", "event": "checkpoint written"}').is_meant


def test_statistics_of_gradients_that_cannot_be_are_not_measured() -> None:
    line = read('{"iteration": 3, "loss": 1, "gradient_sqr": -1, "gradient_var": Infinity}')
    assert line == ProgressLine(3.0, False, 1.0)


def test_a_loss_that_is_no_number_any_more_is_passed_on() -> None:
    line = read('{"iteration": 3, "loss": NaN}')
    assert line is not None
    assert line.loss != line.loss


def test_lines_of_a_pattern() -> None:
    pattern = r"step (?P<iteration>\d+).*loss (?P<loss>\S+)(?: acc (?P<accuracy>\S+))?"
    assert read("[12:00] step 7 of 9, loss 0.5 acc 0.75", pattern) == ProgressLine(7.0, False, 0.5, 0.75)
    assert read("step 7 of 9, loss 0.5", pattern) == ProgressLine(7.0, False, 0.5)
    assert read(json.dumps({"iteration": 7, "loss": 0.5}), pattern) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.5", 0.5), ("1e-4", 1e-4), (".5", 0.5), ("1_000", 1000.0), ("-Infinity", -inf), ("inf", inf), ("+.inf", inf),
        ("-.inf", -inf), ("Decimal('1E-4')", 1e-4), ("np.float32(0.5)", 0.5), ("numpy.int64(3)", 3.0), ("array(0.5)", 0.5),
        ("1.#INF", inf), ("-1.#INF00", -inf), ("tensor(0.5, device='cuda:0')", 0.5), ("\x1b[1m0.5\x1b[0m", 0.5),
        ("1,234.5", None), ("n/a", None), ("85%", None), ("[0.5]", None), ("", None), ("array([1, 2])", None),
        ("0,5", None), ("1'234.5", None), ("1d-5", None), ("1.5k", None), ("0x1.8p3", None),
    ],
)  # fmt: skip
def test_numbers_as_programs_print_them(text: str, value: float | None) -> None:
    assert number(text) == value


@pytest.mark.parametrize(
    "text", ["nan", "NaN", "-nan", ".nan", ".NaN", "np.float64(nan)", "tensor(nan)", "Decimal('NaN')", "1.#IND", "-1.#QNAN0"]
)
def test_what_is_not_a_number_is_read_as_that(text: str) -> None:
    read_number = number(text)
    assert read_number is not None
    assert isnan(read_number)


@pytest.mark.parametrize("loss", ["nan", "inf", "-inf", "1_000.5", "Decimal('0.25')", "np.float64(0.25)", ".5", "1e-4", "NaN"])
def test_json_that_an_f_string_prints_is_read(loss: str) -> None:
    line = read(f'{{"iteration": 3, "loss": {loss}, "note": "loss: nan, or [inf]"}}')
    assert line is not None
    assert (line.step, repr(line.loss)) == (3.0, repr(number(loss)))


@pytest.mark.parametrize(
    ("text", "pattern", "loss"),
    [
        ("3/20 - loss: nan", OF_DIGITS, nan),
        ("3/20 - loss: nan", OF_WORDS, nan),
        ("[INF] 3/20 - loss: -inf", OF_DIGITS, -inf),
        ("step 3/20 loss: NaN", r"(?P<iteration>\d+)/\d+ loss: (?P<loss>\d+\.\d{4})", nan),
        ("3/20 - loss: -0.5", OF_DIGITS, -0.5),
        ("3/20 - loss: 1e-05", OF_DIGITS, 1e-5),
        ("3/20 - loss: 2.5E+3", OF_DIGITS, 2500.0),
        ("3/20 - loss: 1_000", OF_WORDS, 1000.0),
        ("3/20 - loss: 1_000", OF_DIGITS, 1000.0),
        ("3/20 - loss: 1_234.5e1 after 2 s", OF_DIGITS, 12345.0),
        ("3/20 - loss: 1.#IND", OF_DIGITS, nan),
        ("3/20 - loss: -1.#IND", OF_WORDS, nan),
        ("3/20 - loss: -1.#IND", OF_DIGITS, nan),
        ("3/20 - loss: 1.#INF0", r"(?P<iteration>\d+)/\d+ - loss: (?P<loss>\d+\.\d+)", inf),
        ("3/20 - loss: -1_000", OF_DIGITS, -1000.0),
        ("3/20 - loss: -1e-05 after 2 s", OF_DIGITS, -1e-5),
        ("3/20 - loss: -0.5, acc 1", OF_DIGITS, -0.5),
        ("3/20 - loss: -0.5,0.7", OF_DIGITS, -0.5),
        ("3/20 - loss: 0.5, acc 1", OF_DIGITS, 0.5),
        ("3/20 - loss: 0.5kB", OF_DIGITS, 0.5),
        ("3/20 - loss: 0.5s", OF_DIGITS, 0.5),
        ("3,1,7", r"^(?P<iteration>\d+),(?P<loss>[\d.]+)", 1.0),
        ("3,0.5,0.75", r"^(?P<iteration>\d+),(?P<loss>[\d.]+)", 0.5),
        ("3 0.5,0.75", r"^(?P<iteration>\d+) (?P<loss>[\d.]+)", 0.5),
        ("epoch-3/20 - loss: 0.5", OF_DIGITS, 0.5),
        ("epoch_3/20 - loss: 0.5", OF_DIGITS, 0.5),
        ("v2e3/20 - loss: 0.5", OF_DIGITS, 0.5),
        ("2026-11-3/20 - loss: 0.5", OF_DIGITS, 0.5),
    ],
)
def test_a_pattern_finds_whole_numbers(text: str, pattern: str, loss: float) -> None:
    line = read(text, pattern)
    assert line is not None
    assert (line.step, repr(line.loss)) == (3.0, repr(loss))


@pytest.mark.parametrize(
    ("text", "pattern", "message"),
    [
        ("3/20 - loss: 1,234.5", OF_DIGITS, "loss: got '1,234', expected a number"),
        ("3/20 - loss: 1,234.5", OF_WORDS, "loss: got '1,234.5', expected a number"),
        ("3/20 - loss: 1,234,567", OF_DIGITS, "loss: got '1,234', expected a number"),
        ("1,003/2,000 - loss: 0.5", OF_DIGITS, "iteration: got '1,003', expected a number"),
        ("3/20 - loss: 0,4665", OF_DIGITS, "loss: got '0,4665', expected a number"),
        ("3/20 - loss: 1'234.5", OF_DIGITS, 'loss: got "1\'234.5", expected a number'),
        ("3/20 - loss: 1d-5", OF_DIGITS, "loss: got '1d-5', expected a number"),
        ("3/20 - loss: 0x1.8p3", OF_DIGITS, "loss: got '0x1.8p3', expected a number"),
        ("3/20 - loss: 1.5k", OF_DIGITS, "loss: got '1.5k', expected a number"),
        ("3/20 - loss: 1.5B", OF_DIGITS, "loss: got '1.5B', expected a number"),
        ("3/20 - loss: -0,5", OF_DIGITS, "loss: got '-0,5', expected a number"),
        ("3/20 - loss: -1,234.5", OF_DIGITS, "loss: got '-1,234', expected a number"),
        ("3/20 - loss: -1'234.5", OF_DIGITS, 'loss: got "-1\'234.5", expected a number'),
        ("3/20 - loss: -1.5k", OF_DIGITS, "loss: got '-1.5k', expected a number"),
        ("3/20 - loss: -1d-5", OF_DIGITS, "loss: got '-1d-5', expected a number"),
        ("3/20 - loss: n/a", OF_DIGITS, "loss: got 'n/a', expected a number"),
        ("3/20 - loss: None", OF_DIGITS, "loss: got 'None', expected a number"),
        ("3/20 - loss: n/a", OF_WORDS, "loss: got 'n/a', expected a number"),
        ('{"iteration": 3, "loss": 1,234.5}', "", "expected JSON such as"),
        ('{"iteration": 3, "loss": "1,234.5"}', "", "loss: got '1,234.5', expected a number"),
    ],
)
def test_no_part_of_a_number_is_taken_for_it(text: str, pattern: str, message: str) -> None:
    assert message in str(refusal(text, pattern))


def test_columns_that_commas_part_are_no_thousands() -> None:
    line = read("5,123,0.7", r"^(?P<iteration>\d+),\d+,(?P<loss>[\d.]+)")
    assert line == ProgressLine(5.0, False, 0.7)
    assert read("12,1000,0.53", r"(?P<iteration>\d+),(?P<loss>\d+\.\d+)") == ProgressLine(1000.0, False, 0.53)


@pytest.mark.timeout(30)  # a search that is quadratic in these digits takes minutes
def test_a_long_line_of_digits_costs_no_more_than_others() -> None:
    assert read("nan -" + "1" * (MAX_LINE - 10) + "x", OF_DIGITS) is None


@pytest.mark.parametrize("text", ["aaa", "[INF] loss: 0.5", "saved at -3", "20 lines"])
def test_other_lines_are_no_progress_of_a_pattern(text: str) -> None:
    assert read(text, SLOW) is None


@pytest.mark.parametrize(
    ("text", "is_meant", "names_step", "step"),
    [
        ('{"iteration": 3, "loss": n/a}', True, True, 3.0),
        ("{'samples': 96, 'loss': 0.5}", True, True, 96.0),
        ('{"iteration": "x", "loss": 0.5}', True, True, None),
        ('{"step": 3, "loss": 0.5}', True, False, None),
        ('{"level": "info"}', False, False, None),
    ],
)
def test_a_refused_line_says_how_far_the_program_has_come(
    text: str, is_meant: bool, names_step: bool, step: float | None
) -> None:
    refused = refusal(text)
    assert (refused.is_meant, refused.names_step, refused.step) == (is_meant, names_step, step)


def test_json_beyond_the_bound_is_refused() -> None:
    line = PrintedLine('yyy"}', head='{"iteration": 3, "loss": 0.5, "x": "yyy', length=3_000_000)
    with pytest.raises(RefusedLine, match=rf"3000000 bytes\)', expected at most {MAX_LINE} bytes") as refused:
        parse(line, None)
    assert (refused.value.is_meant, refused.value.step) == (True, 3.0)
    assert parse(PrintedLine("yyy", head="[yyy", length=3_000_000), None) is None


def test_a_pattern_that_backtracks_without_end_is_named() -> None:
    with pytest.raises(SlowPatternError, match=r"the progress pattern .* took longer than .* on a line of 61 characters"):
        read("a" * 60 + "!", SLOW)


@pytest.mark.parametrize("text", ['"' * MAX_LINE, '{"' + '\\"' * 30_000, "{" * MAX_LINE, "{" + "1" * MAX_LINE])
def test_json_that_ends_nowhere_is_refused_soon(text: str) -> None:
    assert text.startswith('"') or refusal(text)
