"""What `beamer run` is told, and its arguments read where nothing is wrong with them.

typer takes a third of a second to import, for which the command would wait. So arguments without a doubt are read here. All
others, and `--help`, are left to typer, which says what is wrong in the words of the other commands.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from beamer.errors import InputError
from beamer.studies.model import MAX_RANK, MAX_STEPS, check_name


@dataclass(frozen=True)
class RunOptions:
    """What is run, and as whom. Raises `InputError` for what the controller would refuse later."""

    command: tuple[str, ...]
    """The program and its arguments."""
    study: str
    """The study's name."""
    trial: str = ""
    """The trial's name; "": one made of the command, the host and the process id."""
    run: str = ""
    """The run of the study; "": what `BEAMER_RUN` names, or else the present one."""
    workers: tuple[str, ...] = ()
    """The hosts that the command runs on, one per launch of it; (): this machine."""
    rank: int = 0
    """Which of `workers` this launch is; the first one registers the trial, the others attach to it."""
    milestones: tuple[int, ...] = ()
    """Steps that somebody waits for."""
    budget: int | None = None
    """The step at which the trial is complete; None: not known."""
    progress: str = ""
    """How its output tells progress: a pattern or the name of a format; "": not at all."""
    controller: str = ""
    """The controller's URL, or several with commas; "": as the client finds it."""

    def __post_init__(self) -> None:
        if not self.command:
            raise InputError("command", "", "a program and its arguments after --")
        for name in ("study", "trial", "run"):
            if value := getattr(self, name):
                check_name(value, f"--{name}")
        if not self.study:
            raise InputError("--study", "", "a name")
        for worker in self.workers:
            check_name(worker, "--workers")
        if not 0 <= self.rank <= MAX_RANK or (self.workers and self.rank >= len(self.workers)):
            raise InputError("--rank", self.rank, f"0 to {len(self.workers) - 1}, one of --workers")
        if self.rank and not self.workers:
            raise InputError("--rank", self.rank, "0 without --workers")
        if len(self.workers) > 1 and not self.trial:
            raise InputError("--trial", "", "a name, the same for every launch of several")
        for name, steps in (("--milestone", self.milestones), ("--budget", () if self.budget is None else (self.budget,))):
            for step in steps:
                if not 1 <= step <= MAX_STEPS:
                    raise InputError(name, step, f"1 to {MAX_STEPS} steps")


_TEXTS = {"--study": "study", "--trial": "trial", "--run": "run", "--progress": "progress", "--controller": "controller"}
_NUMBERS = {"--rank": "rank", "--budget": "budget"}
MILESTONE, WORKERS = "--milestone", "--workers"
OPTIONS = (*_TEXTS, *_NUMBERS, MILESTONE, WORKERS)


def read_plain(arguments: Sequence[str]) -> RunOptions | None:
    """Return what arguments say, None where typer is to read them. Raises `InputError` as `RunOptions` does."""
    if "--" not in arguments:
        return None
    at = arguments.index("--")
    words, command = list(arguments[:at]), tuple(arguments[at + 1 :])
    values: dict[str, str] = {}
    milestones: list[int] = []
    while words:
        name, is_joined, value = words.pop(0).partition("=")
        if name not in OPTIONS or name in values or (not is_joined and not words):
            return None
        value = value if is_joined else words.pop(0)
        if (name in _NUMBERS or name == MILESTONE) and not (value.isascii() and value.isdigit()):
            return None
        if name == MILESTONE:
            milestones.append(int(value))
        else:
            values[name] = value
    if not command or "--study" not in values:
        return None
    return RunOptions(
        command,
        workers=hosts(values.pop(WORKERS, "")),
        milestones=tuple(milestones),
        **{_NUMBERS[name]: int(values.pop(name)) for name in _NUMBERS if name in values},  # type: ignore[arg-type]
        **{_TEXTS[name]: value for name, value in values.items()},  # type: ignore[arg-type]
    )


def hosts(text: str) -> tuple[str, ...]:
    """Return the hosts of a list with commas."""
    return tuple(host for one in text.split(",") if (host := one.strip()))
