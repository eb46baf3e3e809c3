"""Commands of Python programs, taken apart as the interpreter does."""

import pytest

from beamer.engines.local.python_command import PythonCommand, parse_command
from beamer.errors import InputError


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python train.py --lr 1", PythonCommand("python", (), False, "train.py", ("--lr", "1"))),
        ("/opt/x/python3.12 -u t.py -m 3", PythonCommand("/opt/x/python3.12", ("-u",), False, "t.py", ("-m", "3"))),
        ("python -m pack.train -O", PythonCommand("python", (), True, "pack.train", ("-O",))),
        ("python -mpack x", PythonCommand("python", (), True, "pack", ("x",))),
        ("pypy3 -OOsE t.py", PythonCommand("pypy3", ("-O", "-O", "-s", "-E"), False, "t.py", ())),
        ("python -OW error -Xutf8 t.py", PythonCommand("python", ("-O", "-Werror", "-Xutf8"), False, "t.py", ())),
        ("python3.13t -Bm pack", PythonCommand("python3.13t", ("-B",), True, "pack", ())),
        (
            "python --check-hash-based-pycs always t.py",
            PythonCommand("python", ("--check-hash-based-pycs", "always"), False, "t.py", ()),
        ),
        ("python -- -t.py", PythonCommand("python", (), False, "-t.py", ())),
    ],
)
def test_a_command_is_read_as_the_interpreter_reads_it(command: str, expected: PythonCommand) -> None:
    assert parse_command(command.split()) == expected


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("bash train.sh", "a Python program where modules are preloaded"),
        ("./train.py", "a Python program"),
        ("torchrun train.py", "a Python program"),
        ("env A=1 python train.py", "a Python program"),
        ("python-config", "a Python program"),
        ("python", "a Python program"),
        ("python -O", "a Python program"),
        ("python -m", "a Python program"),
        ("python -c pass", "not -c"),
        ("python -iO t.py", "not -iO"),
        ("python -x t.py", "not -x"),
        ("python --help", "not --help"),
        ("python - x", "not the standard input"),
        ("python t.pyc", "no compiled one"),
    ],
)
def test_what_is_no_script_and_no_module_is_refused(command: str, said: str) -> None:
    with pytest.raises(InputError, match=rf"command: got \('{command.split()[0]}'.*{said}"):
        parse_command(command.split())
