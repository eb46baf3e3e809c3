"""The policies of both levels, with their parameters."""

import inspect
from typing import Any

from beamer.gpu.policies import GPU_POLICIES
from beamer.network.policies import NETWORK_POLICIES
from reference.tables import code, table


def page() -> str:
    """Return the page of policies."""
    return f"""# Policies and their parameters

A policy is named on the command line (`--policy`, `--policies`, `--gpu-policy`). `--set NAME=VALUE` sets a parameter of a GPU
policy. [Network policies](../../network-policies.md) and [GPU policies](../../gpu-policies.md) say which to choose.

## Network policies

None takes parameters: what their descriptions name besides are constants of the code.

{_all(NETWORK_POLICIES)}
## GPU policies

{_all(GPU_POLICIES)}"""


def _all(registry: Any) -> str:
    return "\n".join(_policy(registry.choose("policy", name)) for name in registry if name in registry._own)


def _policy(policy: Any) -> str:
    rows = [
        (
            code(name),
            code(inspect.formatannotation(one.annotation)),
            code(repr(one.default)) if one.default is not one.empty else "",
        )
        for name, one in inspect.signature(policy).parameters.items()
    ]
    text = f"### {policy.name}\n\n{inspect.getdoc(policy)}\n"
    return text + ("\n" + table(("parameter", "type", "default"), rows) if rows else "")
