"""Limits and settings: option dataclasses with a docstring per field."""

from beamer.client import client
from beamer.client.credentials import CA_VARIABLE, INSECURE_VARIABLE
from beamer.client.lease import AGENT_VARIABLE
from controller.limits import Limits
from controller.liveness.watch import WatchOptions
from hostagent.limits import ASSIGNMENT_LIMITS
from reference.fields import documented
from reference.tables import code, table


def page() -> str:
    """Return the page of limits and settings."""
    assignment = [(code(name), str(value)) for name, value in vars(ASSIGNMENT_LIMITS).items()]
    return f"""# Limits and settings

## Limits of the controller

`beamer-controller --limits FILE` reads a YAML or JSON mapping of these. [Operate](../../operate.md#limits) says what happens
beyond one.

{_fields(Limits)}
## Silence

How long a process may be missing before that counts. Options of `beamer-controller` set them.

{_fields(WatchOptions)}
## Agents

[`beamer-hostagent`](commands.md#beamer-hostagent) has options for what a site may change. An agent refuses an assignment beyond
these, which no option sets:

{table(("limit", "most"), assignment)}
## Environment of the client

{table(("variable", "for"), _VARIABLES)}"""


_VARIABLES = (
    (code(client.URL_VARIABLE), f"Where the controller listens. Default: `{client.URL}`."),
    (code(client.RUN_VARIABLE), "The run of the study that processes share."),
    (code(CA_VARIABLE), "Certificates of authorities that the controller's certificate is trusted by, PEM."),
    ("`BEAMER_TOKEN`, `BEAMER_TOKEN_FILE`", "The bearer token, or a file that holds it."),
    (code(INSECURE_VARIABLE), "Set to `1`: a token may go over plain HTTP."),
    (code(AGENT_VARIABLE), "The Unix socket at which workers attach to their host's agent."),
)


def _fields(record: type) -> str:
    rows = [(code(one.name), code(one.default), one.text) for one in documented(record)]
    return table(("field", "default", "meaning"), rows)
