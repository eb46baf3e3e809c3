"""`beamer fabric check`: in what the network differs from its file, as the controller that leads sees it."""

import sys
from collections.abc import Mapping
from typing import Any

from beamer.errors import NoControllerError, PlatformError
from beamer.inspect.api import ControllerApi
from beamer.inspect.options import JsonFlag, UrlOption
from beamer.inspect.switch_forms import forms_in_words, limits_of_forms
from beamer.inspect.text import console, print_json, several, shown

Json = Mapping[str, Any]


def check(url: UrlOption = None, as_json: JsonFlag = False) -> None:
    """Show where the network is not as its file says: what a controller sees of ports, cables and hosts, and agents say.

    Ends with 1 where it differs or a switch shows nothing, and with 2 where no controller leads, or it leads no switch.
    """
    with ControllerApi(url) as api:
        health = next((state.health for state in api.states() if state.health is not None), None)
        if health is None:
            raise NoControllerError(
                f"no controller leads at {api.named}", "start one with beamer-controller, or name another with --url"
            )
    found = health.get("network")
    if found is None:
        raise PlatformError("the controller is older than this command, and does not look at its network", "upgrade it first")
    of = health["switches"]["expected"]
    if not of:
        raise PlatformError("the controller leads no switch, and only switches show a network", "compare its cables by hand")
    forms = health.get("switch_forms", {})  # A controller of version 0.1.0 knows one form alone.
    if as_json:
        print_json({"switches": of, **found, "switch_forms": forms})
    else:
        out = console()
        for text in (*found["mismatches"], *agents_in_words(found)):
            out.print(shown(text))
        for text in (*found.get("remarks", ()), *forms_in_words(forms), *limits_of_forms(forms)):
            out.print(shown(f"remark: {text}"))
        for text in summary(found, of):
            out.print(shown(text))
    if differs(found):
        sys.exit(1)


def differs(found: Json) -> bool:
    """Say whether a network is not as its file says, or not known to be. found: `network` of the controller's health."""
    return any(found.get(part) for part in ("mismatches", "unseen", "unread_queues", "not_applied"))


def agents_in_words(found: Json) -> list[str]:
    """Return why agents have not applied what they are assigned. found: `network` of the controller's health."""
    not_applied = found.get("not_applied", {})  # A controller of version 0.1.0 does not keep it.
    return [f"agent {name} has not applied what it is assigned: {reason}" for name, reason in not_applied.items()]


def queues_not_known(switches: list[str]) -> str:
    """Return what is said of switches whose queues the controller makes, and has not read back or not seen in use."""
    return f"the queues of {', '.join(switches)} are not known: not read back, or not seen in use"


def summary(found: Json, switches: int) -> list[str]:
    """Return what the mismatches come to, a sentence each. found: `network` of the controller's health."""
    lines = []
    if found["unseen"]:
        why = "not connected, see beamer status, or without a description of its ports, see the controller's log"
        lines.append(f"nothing is seen of {', '.join(found['unseen'])}: {why}")
    if unread := found.get("unread_queues"):
        lines.append(queues_not_known(unread))
    if found["dead_cables"]:
        lines.append(f"dead, and not used where there is another path: {', '.join('-'.join(e) for e in found['dead_cables'])}")
    if found["cut_off"]:
        lines.append(f"no path leads to {', '.join(found['cut_off'])}")
    if not differs(found):
        but = " but for the remarks" if found.get("remarks") else ""
        lines.append(f"what {several(switches, 'switch', 'switches')} and their hosts show is as the network's file says{but}")
    return lines
