"""Trace files of both formats, and everything that can be wrong with one."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from beamer.errors import InputError
from beamer.sim.traces import FORMATS, Trace, read
from tests.support.inputs import FACEBOOK_TRACE, given

MB = 2**20

BENCHMARK = "3 2\na 0 2 0 1 2 1:10.0 2:3\nb 1500 1 2 1 0:0.5\n"
SINCRONIA = "3 2\na 0 4 2 2 0 1 5 1 1 5 0 2 1.5 1 2 1.5\nb 1500 1 1 1 2 0 0.5\n"
BOTH = [("coflow-benchmark", BENCHMARK), ("sincronia", SINCRONIA)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.txt"


def parse(path: Path, text: str, form: str) -> Trace:
    path.write_text(text)
    return read(path, form)


def flows(trace: Trace) -> list[tuple[str, float, list[tuple[int, int, float]]]]:
    return [
        (c.id, c.release_s, list(zip(c.src.tolist(), c.dst.tolist(), c.size_bytes.tolist(), strict=True)))
        for c in trace.coflows
    ]


@pytest.mark.parametrize(("form", "text"), BOTH)
def test_both_formats_tell_the_same(path: Path, form: str, text: str) -> None:
    trace = parse(path, text, form)
    assert trace.ports == 3
    assert flows(trace) == [
        ("a", 0.0, [(0, 1, 5.0 * MB), (1, 1, 5.0 * MB), (0, 2, 1.5 * MB), (1, 2, 1.5 * MB)]),
        ("b", 1.5, [(2, 0, 0.5 * MB)]),
    ]
    assert all(c.src.dtype == c.dst.dtype == np.int64 and c.size_bytes.dtype == np.float64 for c in trace.coflows)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("coflow-benchmark", "3 2\na 0 2 1 2 2 2:10 3:3\nb 1500 1 3 1 1:0.5\n"),
        ("sincronia", "3 2\na 0 4 2 2 1 2 5 2 2 5 1 3 1.5 2 3 1.5\nb 1500 1 1 1 3 1 0.5\n"),
    ],
)
def test_ports_numbered_from_one_are_the_same_ports(path: Path, form: str, text: str) -> None:
    assert flows(parse(path, text, form)) == flows(parse(path, dict(BOTH)[form], form))


@pytest.mark.parametrize(("form", "text"), BOTH)
def test_a_reducers_size_is_split_over_its_mappers_and_nothing_is_lost(path: Path, form: str, text: str) -> None:
    assert sum(c.size_bytes.sum() for c in parse(path, text, form).coflows) == 13.5 * MB


@pytest.mark.parametrize("form", FORMATS)
def test_a_trace_without_coflows(path: Path, form: str) -> None:
    assert parse(path, "8 0\n", form).coflows == ()


@pytest.mark.parametrize(("form", "text"), BOTH)
def test_white_space_and_line_ends_do_not_matter(path: Path, form: str, text: str) -> None:
    path.write_bytes(("\n" + text.replace("\n", "  \r\n\r\n").replace(" ", "\t ")).encode())
    assert flows(read(path, form)) == flows(parse(path, text, form))


@pytest.mark.parametrize(("form", "text"), BOTH)
def test_a_word_fewer_or_more_is_an_error_on_its_line(path: Path, form: str, text: str) -> None:
    lines = text.splitlines()
    for i, change in product(range(len(lines)), ("fewer", "more")):
        words = lines[i].split()
        changed = " ".join(words[:-1] if change == "fewer" else [*words, "9"])
        with pytest.raises(InputError, match=rf"trace\.txt: line {i + 1}: "):
            parse(path, "\n".join([*lines[:i], changed, *lines[i + 1 :]]), form)


@pytest.mark.parametrize(
    ("form", "old", "new", "message"),
    [
        ("coflow-benchmark", "3 2\n", "0 2\n", "line 1: ports: got '0', expected an integer from 1"),
        (
            "coflow-benchmark",
            "3 2\n",
            "2147483647 2\n",
            "line 1: ports: got '2147483647', expected an integer from 1 to 1048576",
        ),
        ("coflow-benchmark", "b 1500", "b 1e18", "line 3: arrival: got '1e18', expected at most 31622400000"),
        ("coflow-benchmark", "0:0.5", "0:1e10", "line 3: megabytes: got '1e10', expected at most 953674316.40625"),
        (
            "sincronia",
            "b 1500 1 1 1 2 0 0.5",
            "b 1500 99999999 1 1",
            "line 3: flows: got '99999999', expected an integer from 1",
        ),
        ("sincronia", "2 0 0.5", "2 0 1e300", "line 3: megabytes: got '1e300', expected at most"),
        ("coflow-benchmark", "3 2\n", "x 2\n", "line 1: ports: got 'x'"),
        ("coflow-benchmark", "3 2\n", "3 -1\n", "line 1: coflows: got '-1'"),
        ("coflow-benchmark", "3 2\n", "3 3\n", "line 1: coflows: got 3, expected 2, the lines that follow"),
        ("coflow-benchmark", "3 2\n", "3 1\n", "line 1: coflows: got 1, expected 2, the lines that follow"),
        ("coflow-benchmark", "3 2\n", "3 " + "9" * 5000 + "\n", "line 1: coflows: got '999"),
        ("coflow-benchmark", "b 1500", "a 1500", "line 3: id: got 'a', expected an id that no coflow before it has"),
        ("coflow-benchmark", "b 1500", "b nan", "line 3: arrival: got 'nan', expected a finite number"),
        ("coflow-benchmark", "b 1500", "b -1", "line 3: arrival: got '-1'"),
        ("coflow-benchmark", "b 1500", "b inf", "line 3: arrival: got 'inf'"),
        ("coflow-benchmark", "b 1500", "b soon", "line 3: arrival: got 'soon'"),
        ("coflow-benchmark", "a 0 2 ", "a 0 0 ", "line 2: mappers: got '0', expected an integer from 1"),
        ("coflow-benchmark", "a 0 2 ", "a 0 2.0 ", "line 2: mappers: got '2.0'"),
        ("coflow-benchmark", "b 1500 1 2 1 0:0.5", "b 1500 1 2", "line 3: reducers: got None, expected a value"),
        ("coflow-benchmark", "b 1500 1 2 1 0:0.5", "b 1500 1 2 0", "line 3: reducers: got '0'"),
        ("coflow-benchmark", "0:0.5", "0", "line 3: reducer: got '0', expected port:megabytes"),
        ("coflow-benchmark", "0:0.5", "0:", "line 3: megabytes: got ''"),
        ("coflow-benchmark", "0:0.5", ":0.5", "line 3: reducer: got ''"),
        ("coflow-benchmark", "0:0.5", "0:nan", "line 3: megabytes: got 'nan'"),
        ("coflow-benchmark", "0:0.5", "0:-0.5", "line 3: megabytes: got '-0.5', expected a finite number of at least 0"),
        ("coflow-benchmark", "0:0.5", "0:1e308", "line 3: megabytes: got '1e308'"),
        ("coflow-benchmark", "0:0.5", "4:0.5", "line 3: reducer: got '4', expected an integer from 0 to 3"),
        ("coflow-benchmark", "0:0.5", "0:0.5 1:1", "line 3: end of line: got '1:1', expected nothing more"),
        ("coflow-benchmark", "b 1500 1 2 ", "b 1500 1 -2 ", "line 3: mapper: got '-2'"),
        (
            "coflow-benchmark",
            "b 1500 1 2 ",
            "b 1500 1 3 ",
            "line 3: port: got 3, expected 0 to 2: the file numbers",
        ),
        ("sincronia", "a 0 4 ", "a 0 5 ", "line 2: source: got None"),
        ("sincronia", "a 0 4 ", "a 0 3 ", "line 2: end of line: got '1'"),
        ("sincronia", "a 0 4 2 2", "a 0 4 3 2", "line 2: sources: got 3, expected 2, the distinct ones"),
        ("sincronia", "a 0 4 2 2", "a 0 4 2 1", "line 2: destinations: got 1, expected 2, the distinct ones"),
        ("sincronia", "b 1500 1 1 1 2 0 0.5", "b 1500 0 1 1", "line 3: flows: got '0'"),
        ("sincronia", "2 0 0.5", "2 0 nan", "line 3: megabytes: got 'nan'"),
        ("sincronia", "2 0 0.5", "2 0 -1", "line 3: megabytes: got '-1'"),
        ("sincronia", "2 0 0.5", "2 0", "line 3: megabytes: got None"),
        ("sincronia", "2 0 0.5", "2 7 0.5", "line 3: destination: got '7'"),
        ("sincronia", "2 0 0.5", "3 0 0.5", "line 3: port: got 3"),
        ("sincronia", "b 1500", "a 1500", "line 3: id: got 'a'"),
    ],
)
def test_what_is_wrong_is_named_with_file_line_field_and_value(path: Path, form: str, old: str, new: str, message: str) -> None:
    text = dict(BOTH)[form]
    assert text.count(old) == 1
    with pytest.raises(InputError) as caught:
        parse(path, text.replace(old, new), form)
    assert str(caught.value).startswith(f"{path}: {message}")


def test_lines_count_as_in_the_file(path: Path) -> None:
    with pytest.raises(InputError, match="line 5: arrival"):
        parse(path, "3 2\n\na 0 1 0 1 1:1\n\nb x 1 0 1 1:1\n", "coflow-benchmark")


def test_files_that_are_no_traces(path: Path) -> None:
    with pytest.raises(InputError, match=r"trace: got .*, expected a readable file \(No such file"):
        read(path, "sincronia")
    path.write_bytes(b"\xff\xfe3 0")
    with pytest.raises(InputError, match=r"expected text in UTF-8"):
        read(path, "sincronia")
    with pytest.raises(InputError, match=r"expected a first line `ports coflows`"):
        parse(path, " \n", "sincronia")


def test_an_unknown_format_is_named_with_the_nearest(path: Path) -> None:
    with pytest.raises(InputError, match=r"format: got 'syncronia', expected .*did you mean 'sincronia'"):
        parse(path, SINCRONIA, "syncronia")


def test_the_published_trace() -> None:
    path = given(FACEBOOK_TRACE)
    trace = read(path, "coflow-benchmark")
    assert (trace.ports, len(trace.coflows)) == (150, 526)
    sizes = [c.src.size for c in trace.coflows]
    assert sum(sizes) == 706_397
    assert sum(size <= 100 for size in sizes) == 416
    assert min(min(c.src.min(), c.dst.min()) for c in trace.coflows) == 0
    assert max(max(c.src.max(), c.dst.max()) for c in trace.coflows) == 149
    assert trace.coflows[1].release_s == 10.833
    total = sum(float(word.split(":")[1]) for line in path.read_text().splitlines() for word in line.split() if ":" in word)
    assert sum(c.size_bytes.sum() for c in trace.coflows) == pytest.approx(total * MB)
