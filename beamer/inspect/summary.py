"""What a study's answer says in few words: its trials by status, and its stages that are not over."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from beamer.inspect.text import few, shown
from beamer.studies.model import StageStatus, StudyStatus

Json = Mapping[str, Any]


def trial_counts(study: Json) -> dict[str, int]:
    """Return how many trials have each status; a controller of version 1 does not count them."""
    counted = study.get("trial_counts")
    return dict(Counter(trial["status"] for trial in study["trials"]) if counted is None else counted)


def is_over(study: Json) -> bool:
    """Return whether a study has ended."""
    return bool(study["status"] == StudyStatus.ENDED)


def open_stages(study: Json) -> list[Json]:
    """Return the stages that are not over."""
    return [stage for stage in study["stages"] if stage["status"] != StageStatus.DONE]


def stages_in_words(summed: Json) -> str:
    """Return which stages of a `summary` are waited for, and how many of their trials have arrived."""
    words = [f"{shown(one['name'])} {one['trials'] - one['missing']}/{one['trials']}" for one in summed["stages"][:3]]
    words += [f"{len(summed['stages']) - 3} more"] if len(summed["stages"]) > 3 else []
    words += [f"{summed['stages_done']} done"] if summed["stages_done"] else []
    return ", ".join(words) or "-"


def reached(stage: Json) -> str:
    """Return how many of a stage's trials have arrived."""
    count = len(stage["targets"])
    return f"{count - len(stage['missing'])}/{count}"


def summary(study: Json) -> dict[str, Any]:
    """Return a study as `beamer study ls --json` has it: without its trials, and with the stages that are not over."""
    return {
        "name": study["name"],
        "run": study["run"],
        "status": study["status"],
        "registered_s": study["registered_s"],
        "ended_s": study["ended_s"],
        "trials": trial_counts(study),
        "stages": [
            {
                "name": stage["name"],
                "status": stage["status"],
                "trials": len(stage["targets"]),
                "missing": len(stage["missing"]),
                "registered_s": stage["registered_s"],
            }
            for stage in open_stages(study)
        ],
        "stages_done": len(study["stages"]) - len(open_stages(study)),
    }


def total(studies: Iterable[Json]) -> dict[str, int]:
    """Return how many trials of all studies have each status."""
    found: Counter[str] = Counter()
    for study in studies:
        found.update(trial_counts(study))
    return dict(found)


def target_of(trial: Json) -> Json | None:
    """Return what is waited for next of a trial, None where nothing is: the nearest step that it has not reached."""
    unreached = [target for target in trial["targets"] if target["reached_s"] is None and target["step"] > trial["done"]]
    return min(unreached, key=lambda target: target["step"], default=None)


def progress_of(trial: Json) -> str:
    """Return how far a trial is, and how far it is to go, where that is known."""
    target = target_of(trial)
    step = target["step"] if target else trial["budget"]
    return f"{trial['done']}" if step is None else f"{trial['done']}/{step}"


def last_attempt(trial: Json) -> Json | None:
    """Return the attempt that runs, or the last one."""
    attempts = trial["attempts"]
    return attempts[-1] if attempts else None


def hosts_of(trial: Json) -> str:
    """Return the hosts on which a trial runs, each with how many of its processes run there, where there are several."""
    attempt = last_attempt(trial)
    count = Counter(worker["host"] for worker in attempt["workers"]) if attempt else Counter[str]()
    return few((host if n == 1 else f"{host} x{n}" for host, n in count.items()), 4) or "-"
