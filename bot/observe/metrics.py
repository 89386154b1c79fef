"""Prometheus metrics of a server: deliveries, the queue, and the results and costs of jobs."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from patchwright.bot.faults import EXTERNAL_FAULTS, FAULTS
from patchwright.bot.redis.counters import DURATION_BUCKETS
from patchwright.runtime.frozen_model import FrozenModel

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LabeledValues = Mapping[tuple[str, ...], float]
MAX_LABEL_VALUES = 60  # maximum number of values of a label; the counts of all others are added up as `other`

COUNTER_DEFINITIONS = (
    ("outcomes", "completed_jobs", "Jobs that ended, by outcome.", ("outcome",)),
    ("faults", "job_failures", "Jobs that failed, by cause and error.", ("fault", "error")),
    ("failures", "unsolved_runs", "Runs that did not solve the issue, by kind of failure.", ("failure",)),
    ("verdicts", "verdicts", "Verdicts on patches.", ("verdict",)),
    ("usd", "cost_dollars", "Known cost of runs, in dollars.", ()),
    ("unpriced", "unpriced_runs", "Runs with a model call of unknown price.", ()),
    ("tokens", "tokens", "Model tokens; cached tokens are included in prompt tokens.", ("kind", "model")),
    ("steps", "steps", "Model replies.", ()),
    ("repairs", "repairs", "Number of times that a patch was returned to the agent for repair.", ()),
    ("ci", "ci", "Commits with CI on hold, and jobs that repair failed checks.", ("action",)),
)  # fmt: skip
"""The metrics that Counters stores. Each entry contains the metric's name in Counters, its name in Prometheus,
its help text, and its labels without `metrics_label`.
"""


class MetricsSnapshot(FrozenModel):
    """The values from which the metrics are rendered."""

    deliveries: Mapping[tuple[str, str], int]
    """The number of deliveries since the process started, by event and result."""
    counts: Mapping[str, Mapping[str, float]]
    """The counts, in the form that `Counters.fetch_counts` returns."""
    inbox_size: int
    """The number of stored deliveries that are not processed yet."""
    jobs: Mapping[str, int]
    """Open jobs by state."""
    oldest_job_seconds: float
    """The number of seconds for which the first job in the queue has waited for a worker; 0 if no job is
    waiting.
    """
    workers: int


def render_metrics(snapshot: MetricsSnapshot) -> bytes:
    """Renders the metrics in Prometheus text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_StaticCollector(list(_build_metrics(snapshot))))
    return generate_latest(registry)


class _StaticCollector(Collector):
    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> list[Metric]:
        return self._metrics


def _build_metrics(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    received: LabeledValues = {(event, result): n for (event, result), n in snapshot.deliveries.items()}
    yield _make_counter("deliveries", "Webhook deliveries, by result.", ("event", "result"), received)
    yield _make_gauge(
        "inbox_deliveries", "Stored deliveries that are not processed yet.", (), {(): snapshot.inbox_size}
    )
    yield _make_gauge(
        "jobs", "Jobs that have not ended, by state.", ("state",), {(s,): n for s, n in snapshot.jobs.items()}
    )
    yield _make_gauge(
        "queue_oldest_seconds",
        "How long the first job in the queue has waited.",
        (),
        {(): snapshot.oldest_job_seconds},
    )
    yield _make_gauge("workers", "Live workers.", (), {(): snapshot.workers})
    for name, metric_name, help, labels in COUNTER_DEFINITIONS:
        values = {
            (metrics_label, *label_values): number
            for metrics_label, counts in snapshot.counts.items()
            for label_values, number in _values_by_label(counts, name, len(labels)).items()
        }
        yield _make_counter(metric_name, help, ("metrics_label", *labels), values)
    yield _make_gauge(  # a gauge, because a pull request that is reopened no longer counts
        "pulls",
        "Closed pull requests that Patchwright opened, by outcome.",
        ("metrics_label", "outcome"),
        {
            (metrics_label, *outcome): number
            for metrics_label, counts in snapshot.counts.items()
            for outcome, number in _values_by_label(counts, "pulls", 1).items()
        },
    )
    yield _build_duration_histogram(snapshot.counts)
    yield from _build_rates(snapshot.counts)


def _build_rates(counts: Mapping[str, Mapping[str, float]]) -> Iterator[Metric]:
    ended = {
        metrics_label: sum(_values_by_label(label_counts, "outcomes", 1).values())
        for metrics_label, label_counts in counts.items()
    }
    failed = {
        (label, fault): sum(n for key, n in counted.items() if key.startswith(f"faults {fault} "))
        for label, counted in counts.items()
        for fault in FAULTS
    }
    yield _make_gauge(
        "failures_per_thousand_jobs",
        "Failed jobs per thousand jobs, by cause.",
        ("metrics_label", "fault"),
        {key: 1000 * number / (ended[key[0]] or 1) for key, number in failed.items()},
    )
    internal_failures = {
        metrics_label: sum(
            number
            for (label, fault), number in failed.items()
            if label == metrics_label and fault not in EXTERNAL_FAULTS
        )
        for metrics_label in counts
    }
    yield _make_gauge(
        "infrastructure_success_ratio",
        f"Share of jobs without a failure. Ignores the causes {' and '.join(sorted(EXTERNAL_FAULTS))}.",
        ("metrics_label",),
        {
            (metrics_label,): 1 - number / (ended[metrics_label] or 1)
            for metrics_label, number in internal_failures.items()
        },
    )


def _build_duration_histogram(counts: Mapping[str, Mapping[str, float]]) -> Metric:
    metric = HistogramMetricFamily("patchwright_run_seconds", "Duration of runs.", labels=["metrics_label"])
    bounds = (*map(str, DURATION_BUCKETS), "+Inf")
    for metrics_label, label_counts in counts.items():
        cumulative = accumulate(label_counts.get(f"seconds_within {bound}", 0.0) for bound in bounds)
        buckets = list(zip(bounds, cumulative, strict=True))
        metric.add_metric([metrics_label], buckets, sum_value=label_counts.get("seconds", 0.0))
    return metric


def _values_by_label(
    counts: Mapping[str, float], name: str, label_count: int
) -> dict[tuple[str, ...], float]:
    """Returns the counts of the metric `name`, by the values of its labels.

    A key of `counts` consists of the metric's name and the label values, separated by spaces. Only the last value
    may contain spaces.
    """
    values = {
        tuple(key.split(" ", label_count)[1:]): number
        for key, number in counts.items()
        if key.partition(" ")[0] == name
    }
    if len(values) <= MAX_LABEL_VALUES:
        return values
    kept = dict(sorted(values.items(), key=lambda item: -item[1])[:MAX_LABEL_VALUES])
    for label_values, number in values.items():
        if label_values not in kept:
            other = (*label_values[:-1], "other")
            kept[other] = kept.get(other, 0.0) + number
    return kept


def _make_counter(name: str, help: str, labels: Iterable[str], values: LabeledValues) -> Metric:
    metric = CounterMetricFamily(f"patchwright_{name}", help, labels=list(labels))
    return _add_values(metric, values)


def _make_gauge(name: str, help: str, labels: Iterable[str], values: LabeledValues) -> Metric:
    metric = GaugeMetricFamily(f"patchwright_{name}", help, labels=list(labels))
    return _add_values(metric, values)


def _add_values(metric: CounterMetricFamily | GaugeMetricFamily, values: LabeledValues) -> Metric:
    for labels, value in sorted(values.items()):
        metric.add_metric(list(labels), value)
    return metric
