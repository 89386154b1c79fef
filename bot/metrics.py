"""The figures of a server for Prometheus: what came in, what waits, what became of it and what it cost."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from runtime.frozen import Frozen

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Figures(Frozen):
    """What there is to show."""

    deliveries: Mapping[str, int]
    """By what became of them, since this process began."""
    counts: Mapping[str, float]
    """As `Ledger.counts` gives them."""
    inbox: int
    """Deliveries that are not dealt with."""
    jobs: Mapping[str, int]
    """Jobs that have not ended, by state."""
    oldest_seconds: float
    """How long the job at the head of the queue waits for a worker; 0: none waits."""
    workers: int


def exposition(figures: Figures) -> bytes:
    """The text format of Prometheus."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(list(_metrics(figures))))
    return generate_latest(registry)


class _Collected(Collector):
    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> list[Metric]:
        return self._metrics


def _metrics(figures: Figures) -> list[Metric]:
    counts = figures.counts
    endings = _labelled(counts, "endings")
    ended, failed = sum(endings.values()), endings.get("failed", 0.0)
    return [
        _counters("deliveries", "Webhook deliveries by what became of them.", "came_to", figures.deliveries),
        _gauge("inbox_deliveries", "Deliveries that are stored and not dealt with.", figures.inbox),
        _gauges("jobs", "Jobs that have not ended, by state.", "state", figures.jobs),
        _gauge("queue_oldest_seconds", "How long the next job has waited.", figures.oldest_seconds),
        _gauge("workers", "Workers that live.", figures.workers),
        _counters("job_endings", "Jobs that ended, by what they came to.", "ending", endings),
        _counters("verdicts", "Verdicts on patches.", "verdict", _labelled(counts, "verdicts")),
        _counter("spent_dollars", "Known dollars that runs have cost.", counts.get("usd", 0.0)),
        _counters("tokens", "Tokens of models.", "kind", _labelled(counts, "tokens")),
        _counter("steps", "Replies of models.", counts.get("steps", 0.0)),
        _gauge(
            "infrastructure_success_ratio",
            "Jobs that ended without a failure of the machine, of all that ended; 1 before the first.",
            1 - failed / ended if ended else 1.0,
        ),
    ]


def _labelled(counts: Mapping[str, float], name: str) -> dict[str, float]:
    return {
        key.removeprefix(f"{name} "): number for key, number in counts.items() if key.startswith(f"{name} ")
    }


def _counter(name: str, help: str, value: float) -> Metric:
    return CounterMetricFamily(f"patchwright_{name}", help, value=value)


def _gauge(name: str, help: str, value: float) -> Metric:
    return GaugeMetricFamily(f"patchwright_{name}", help, value=value)


def _counters(name: str, help: str, label: str, values: Mapping[str, float]) -> Metric:
    metric = CounterMetricFamily(f"patchwright_{name}", help, labels=[label])
    for key, value in sorted(values.items()):
        metric.add_metric([key], value)
    return metric


def _gauges(name: str, help: str, label: str, values: Mapping[str, float]) -> Metric:
    metric = GaugeMetricFamily(f"patchwright_{name}", help, labels=[label])
    for key, value in sorted(values.items()):
        metric.add_metric([key], value)
    return metric
