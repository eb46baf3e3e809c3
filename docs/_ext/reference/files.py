"""The keys of files that people write: scenarios and searches."""

from pydantic import BaseModel

from beamer.network import fabric_file
from beamer.schedule import file as search
from beamer.schedule import local_settings, sampling
from beamer.workloads import joint, scenario
from reference.fields import documented
from reference.tables import code, table


def page() -> str:
    """Return the page of files."""
    return f"""# Files

## Scenarios

`beamer simulate`, `beamer emulate` and `beamer workload` read and write them.

{_models(scenario)}
## Scenarios whose searches ask for GPUs

{_models(joint)}
## Searches

`beamer schedule` reads them.

{_models(search)}
## Samplers of searches

{_models(sampling)}
## Nodes of the local engine

{_models(local_settings)}
## Networks

`beamer-controller --fabric`, `beamer fabric show`, `beamer certs` and `beamer journal` read them.

{_models(fabric_file)}"""


def _models(module: object) -> str:
    found = [one for one in vars(module).values() if isinstance(one, type) and issubclass(one, BaseModel)]
    return "\n".join(_model(one) for one in reversed(found) if one.__module__ == getattr(module, "__name__", ""))


def _model(model: type[BaseModel]) -> str:
    rows = [(code(one.name), code(one.kind), code(one.default) or "required", one.text) for one in documented(model)]
    return f"### {model.__name__.strip('_')}\n\n" + table(("key", "type", "default", "meaning"), rows)
