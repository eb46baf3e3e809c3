"""`beamer status`: whether a controller is there and leads, what is not installed by name, and how much runs."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console

from beamer.errors import NoControllerError
from beamer.inspect import summary
from beamer.inspect.api import FOLLOWS, LEADS, ControllerApi, ControllerState
from beamer.inspect.fabric_command import agents_in_words, queues_not_known
from beamer.inspect.options import JsonFlag, UrlOption
from beamer.inspect.switch_forms import forms_in_words
from beamer.inspect.text import FittedTable, ago, console, counts, facts, few, print_json, shown
from beamer.studies.model import StudyStatus

SETTLE_S = 1.0  # A plan that was made a moment ago is installed within this time, unless something is wrong.
MAX_STUDIES = 20

Json = Mapping[str, Any]


def status(url: UrlOption = None, as_json: JsonFlag = False) -> None:
    """Show whether the controller leads, what is not installed and by name, and what runs.

    Ends with 1 where something is wrong that the controller knows of, and with 2 where no controller answers that leads.
    """
    with ControllerApi(url) as api:
        states = list(api.states())
        health = next((state.health for state in states if state.health is not None), None)
        if health is None:
            if as_json:
                print_json({"controllers": _controllers(states), "healthy": False, "problems": ["no controller leads"]})
            why = "; ".join(f"{state.url}: {state.detail}" for state in states)
            remedy = "start one with beamer-controller, or name another with --url"
            raise NoControllerError(f"no controller leads ({why})", remedy)
        found = _found(api, states, health)
    if as_json:
        print_json(found)
    else:
        _print(console(), found)
    if found["problems"]:
        sys.exit(1)


def _found(api: ControllerApi, states: Sequence[ControllerState], health: Json) -> dict[str, Any]:
    plan = api.allowed("/v1/plan")
    if plan is not None and any(one["state"] == "behind" for one in _missing(plan)):
        time.sleep(SETTLE_S)
        plan = api.allowed("/v1/plan")
    studies = (api.allowed("/v1/studies?trials=none") or {"studies": []})["studies"]
    gpus = api.allowed("/v1/gpus")
    missing = [] if plan is None else _missing(plan)
    problems = list(_problems(states, health, plan, missing))
    shown_of_plan = ("policy", "generation", "queues", "quarantined", "installed_everywhere")
    return {
        "controllers": _controllers(states),
        "healthy": not problems,
        "problems": problems,
        "health": dict(health),
        "plan": None if plan is None else {key: plan[key] for key in shown_of_plan},
        "not_installed": missing,
        "studies": [summary.summary(study) for study in studies],
        "trials": summary.total(studies),
        "gpus": None if gpus is None else _gpus(gpus),
        "not_allowed": [path for path, answer in (("/v1/plan", plan), ("/v1/gpus", gpus)) if answer is None],
    }


def _controllers(states: Sequence[ControllerState]) -> list[dict[str, str]]:
    return [{"url": state.url, "state": state.state, "detail": state.detail} for state in states]


def _missing(plan: Json) -> list[dict[str, Any]]:
    """Return the switches and agents on which the plan in force is not installed, and what that concerns."""
    connected, owned = plan.get("connected", {}), plan.get("owned_by_agents", {})
    found = []
    for kind, kinds in (("switch", "switches"), ("agent", "agents")):
        for name, generation in plan["installed"][kinds].items():
            is_connected = name in connected[kinds] if kinds in connected else generation > 0
            if is_connected and generation >= plan["generation"]:
                continue
            state = "behind" if is_connected else "not connected"
            one = {"kind": kind, "name": name, "state": state, "generation": generation}
            found.append({**one, "queues_of": owned.get(name, [])} if kind == "agent" else one)
    return found


def _problems(states: Sequence[ControllerState], health: Json, plan: Json | None, missing: Sequence[Json]) -> Iterator[str]:
    for state in states:
        if state.state not in (LEADS, FOLLOWS):
            yield f"the controller at {state.url} does not answer: {state.detail}"
    if health["status"] != "ok":
        yield f"the journal cannot be written: {health['journal']['failure']}"
    network = health.get("network", {})  # A controller of version 0.1.0 does not look at it.
    yield from network.get("mismatches", ())
    yield from agents_in_words(network)
    if unread := network.get("unread_queues"):
        yield queues_not_known(unread)
    if network.get("cut_off"):
        yield f"no path leads to {', '.join(network['cut_off'])}"
    for name, one in health.get("switch_forms", {}).items():
        if not one["able"]:
            yield f"{name} can hold no rules: {one['reason']}"
    yield from _in_words(missing)
    if plan is not None:
        for key, reason in plan["quarantined"].items():
            yield f"{key} has no class, as no decision can be made with it: {reason}"
        return
    for kinds, done in (("switches", "installed"), ("agents", "connected")):
        of = health[kinds]
        if of[done] < of["expected"]:
            yield f"{of['expected'] - of[done]} of {of['expected']} {kinds} are not {done}"


def _in_words(missing: Sequence[Json]) -> Iterator[str]:
    """Yield what is not installed: in one sentence all switches, and all agents, that lack it for the same reason."""
    for kind, kinds in (("switch", "switches"), ("agent", "agents")):
        for state in ("not connected", "behind"):
            found = [one for one in missing if (one["kind"], one["state"]) == (kind, state)]
            if not found:
                continue
            named = ", ".join(f"{one['name']}{_generation(one)}" for one in found)
            owned = [node for one in found for node in one.get("queues_of", ()) if node != one["name"]]
            queues = f"; with them the queues of {', '.join(owned)}" if owned else ""
            yield f"{kind if len(found) == 1 else kinds} {state}: {named}{queues}"


def _generation(one: Json) -> str:
    return f" (generation {one['generation'] or 'not known'})" if one["state"] == "behind" else ""


def _gpus(gpus: Json) -> dict[str, Any]:
    return {
        "policy": gpus["policy"],
        "generation": gpus["generation"],
        "nodes": len(gpus["nodes"]),
        "gpus": sum(node["gpus"] for node in gpus["nodes"]),
        "used": sum(len(devices) for devices in gpus["trials"].values()),
        "engines": gpus["engines"],
        "held_bytes": sum(gpus.get("held_bytes", {}).values()),  # A controller of version 1 does not have it.
    }


def _print(out: Console, found: Json) -> None:
    present = [study for study in found["studies"] if study["status"] != StudyStatus.ENDED]
    by_status = {one.value: sum(study["status"] == one for study in found["studies"]) for one in StudyStatus}
    problems = found["problems"]
    rows: list[tuple[str, str | None]] = [
        ("controller", f"{shown(one['url'])} {one['state']}{': ' + shown(one['detail']) if one['detail'] else ''}")
        for one in found["controllers"]
    ]
    rows += [
        ("plan", _plan_in_words(found["plan"])),
        ("switches", _installed(found, "switch", "switches", "installed")),
        *(("", shown(text)) for text in forms_in_words(found["health"].get("switch_forms", {}))),
        ("agents", _installed(found, "agent", "agents", "connected")),
        ("gpus", _gpus_in_words(found["gpus"])),
        ("studies", ", ".join(f"{count} {word}" for word, count in by_status.items())),
        ("trials", counts(found["trials"])),
        *(("not shown", f"{path}: the token does not allow to read it") for path in found["not_allowed"]),
        ("problems", shown(problems[0]) if problems else "none"),
        *(("", shown(problem)) for problem in problems[1:]),
    ]
    facts(out, rows)
    if present:
        listed = FittedTable(
            "study", "status", "since", "trials", "stages", right=("since",), names=("study",), wrapped=("trials", "stages")
        )
        for study in present[:MAX_STUDIES]:
            stages = summary.stages_in_words(study)
            listed.add(shown(study["name"]), study["status"], ago(study["registered_s"]), counts(study["trials"]), stages)
        out.print()
        out.print(listed)
    if len(present) > MAX_STUDIES:
        out.print(f"and {len(present) - MAX_STUDIES} more: beamer study ls shows them")


def _plan_in_words(plan: Json | None) -> str | None:
    return None if plan is None else f"generation {plan['generation']} by {shown(plan['policy'])}, {plan['queues']} classes"


def _installed(found: Json, kind: str, kinds: str, done: str) -> str | None:
    """Return on how many switches or agents the plan is installed, None where the fabric has none."""
    expected = found["health"][kinds]["expected"]
    if not expected:
        return None
    if found["plan"] is None:
        return f"{found['health'][kinds][done]} of {expected} {done}"
    return f"{expected - sum(one['kind'] == kind for one in found['not_installed'])} of {expected} have the plan"


def _gpus_in_words(gpus: Json | None) -> str | None:
    if gpus is None or not (gpus["policy"] or gpus["nodes"]):
        return None
    by = f" by {shown(gpus['policy'])}" if gpus["policy"] else ""
    held = f", {gpus['held_bytes'] / 2**30:.1f} GiB held" if gpus["held_bytes"] else ""
    engines = f", engines of {few(gpus['engines'])}" if gpus["engines"] else ", no engine"
    return f"{gpus['used']} of {gpus['gpus']} on {gpus['nodes']} nodes are given{by}{engines}{held}"
