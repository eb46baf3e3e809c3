"""The controller's state in Prometheus' text format."""

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from beamer.measures import quantile
from beamer.network.observed_fabric import KINDS
from controller.openflow.reports import FORMS
from controller.runtime import Runtime


class RuntimeCollector(Collector):
    """Reads a runtime whenever it is scraped."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def collect(self) -> Iterator[Metric]:
        """Yield every metric with its present value."""
        yield from self._journal()
        yield from self._progress()
        yield from self._installation()
        yield from self._queues()
        yield from self._left_out()

    def _journal(self) -> Iterator[Metric]:
        journal = self._runtime.batches
        takes = float(journal.failure is None)
        yield GaugeMetricFamily("beamer_journal_takes_events", "Whether the journal can be written", value=takes)
        yield GaugeMetricFamily("beamer_journal_waiting_events", "Events that are not written yet", value=journal.waiting)

    def _progress(self) -> Iterator[Metric]:
        tracker = self._runtime.tracker
        stages = (stage.status for study in tracker.studies.values() for stage in study.stages.values())
        yield _by_status("beamer_trials", "Trials by status", (trial.status for trial in tracker.trials.values()))
        yield _by_status("beamer_stages", "Stages by status", stages)

    def _installation(self) -> Iterator[Metric]:
        installation = self._runtime.installation
        yield GaugeMetricFamily("beamer_plan_generation", "Generation wanted", value=installation.generation)
        installed = GaugeMetricFamily("beamer_installed_generation", "Generation that runs there", labels=["kind", "name"])
        for kind, generations in (("switch", installation.switches), ("agent", installation.agents)):
            for name, generation in generations.items():
                installed.add_metric([kind, name], generation)
        yield installed
        latency = GaugeMetricFamily(
            "beamer_plan_latency_seconds", "Stage event to plan installed everywhere", labels=["quantile"]
        )
        for share in (0.5, 0.99):
            if (milliseconds := quantile(installation.plan_ms, share)) is not None:
                latency.add_metric([str(share)], milliseconds / 1000)
        yield latency
        phases = GaugeMetricFamily(
            "beamer_plan_phase_seconds", "Stage event to plan installed everywhere, by phase", labels=["phase", "quantile"]
        )
        for name, samples in installation.phases.samples().items():
            for share in (0.5, 0.99):
                if (milliseconds := quantile(samples, share)) is not None:
                    phases.add_metric([name, str(share)], milliseconds / 1000)
        yield phases
        forms = Counter(one.form for one in self._runtime.switch_forms.values())
        of_form = GaugeMetricFamily("beamer_switches", "Connected switches by the form of their rules", labels=["form"])
        for form in FORMS:
            of_form.add_metric([form], forms[form])
        yield of_form
        condition = self._runtime.condition
        wrong = GaugeMetricFamily("beamer_network_mismatches", "Ports that are not as the network's file says", labels=["kind"])
        of_kind = Counter(one.kind for one in condition.seen.mismatches)
        for kind in KINDS:
            wrong.add_metric([kind], of_kind[kind])
        yield wrong
        text = "Switches whose queues the controller makes, and has not read back or not seen in use"
        yield GaugeMetricFamily("beamer_switches_queues_not_known", text, value=len(condition.seen.unread))
        cut_off = len(condition.cut_off)
        yield GaugeMetricFamily("beamer_hosts_cut_off", "Hosts that no path leads to from most others", value=cut_off)

    def _left_out(self) -> Iterator[Metric]:
        labels = ["agent", "message", "part"]
        metric = GaugeMetricFamily(
            "beamer_agent_left_out", "Entries beyond a limit in an agent's latest messages", labels=labels
        )
        for (agent, message, part), count in self._runtime.agents.left_out.items():
            metric.add_metric([agent, message, part], count)
        yield metric

    def _queues(self) -> Iterator[Metric]:
        labels = ["agent", "interface", "class"]
        sent = CounterMetricFamily("beamer_queue_sent_bytes", "Bytes that a queue has sent", labels=labels)
        dropped = CounterMetricFamily("beamer_queue_dropped_packets", "Packets that a queue has dropped", labels=labels)
        for agent, counters in self._runtime.agents.counters.items():
            for port in counters.ports:
                for queue in port.classes:
                    name = "unregistered" if queue.klass is None else str(queue.klass)
                    sent.add_metric([agent, port.interface, name], queue.sent_bytes)
                    dropped.add_metric([agent, port.interface, name], queue.dropped_packets)
        yield sent
        yield dropped


def _by_status(name: str, documentation: str, statuses: Iterable[str]) -> Metric:
    metric = GaugeMetricFamily(name, documentation, labels=["status"])
    for status, count in sorted(Counter(statuses).items()):
        metric.add_metric([status], count)
    return metric


def exposition(runtime: Runtime) -> bytes:
    """Return everything that there is to scrape."""
    return generate_latest(RuntimeCollector(runtime))
