"""The metrics of a controller, as one that runs gives them."""

from prometheus_client.core import Metric

from controller.http.metrics import RuntimeCollector
from reference.runtime import idle_runtime
from reference.tables import code, table


def page() -> str:
    """Return the page of metrics."""
    with idle_runtime() as runtime:
        found = list(RuntimeCollector(runtime).collect())
    rows = [(code(_name(one)), one.type, one.documentation, ", ".join(map(code, one._labelnames))) for one in found]
    return f"""# Metrics

`GET /metrics` answers in Prometheus' text format.

{table(("metric", "type", "what it counts", "labels"), rows)}"""


def _name(metric: Metric) -> str:
    """Return a metric's name as it is scraped."""
    return f"{metric.name}_total" if metric.type == "counter" else metric.name
