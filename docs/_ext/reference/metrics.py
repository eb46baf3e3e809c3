"""The metrics of a controller, as one that runs gives them."""

from controller.http.metrics import RuntimeCollector
from reference.runtime import idle_runtime
from reference.tables import code, table


def page() -> str:
    """Return the page of metrics."""
    with idle_runtime() as runtime:
        found = list(RuntimeCollector(runtime).collect())
    rows = [(code(one.name), one.type, one.documentation, ", ".join(code(name) for name in one._labelnames)) for one in found]
    return f"""# Metrics

`GET /metrics` answers in Prometheus' text format.

{table(("metric", "type", "what it counts", "labels"), rows)}"""
