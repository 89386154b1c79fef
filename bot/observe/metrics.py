"""The figures of a server for Prometheus: what came in, what waits, what became of it and what it cost."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from bot.observe.faults import FAULTS, FOREIGN
from bot.redis.ledger import SECONDS
from runtime.frozen import Frozen

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Values = Mapping[tuple[str, ...], float]
MOST_VALUES = 60  # of one metric's labels; what is rarer is summed up as `other`

LEDGER = (
    ("endings", "job_endings", "Jobs that ended, by what they came to.", ("ending",)),
    ("faults", "job_failures", "Jobs that ended by a failure, by whose it was.", ("fault",)),
    ("verdicts", "verdicts", "Verdicts on patches.", ("verdict",)),
    ("usd", "spent_dollars", "Known dollars that runs have cost.", ()),
    ("unpriced", "unpriced_runs", "Runs of which some price is not known.", ()),
    ("tokens", "tokens", "Tokens of models; cached ones are prompt's too.", ("kind", "model")),
    ("steps", "steps", "Replies of models.", ()),
    ("repairs", "repairs", "Times that a patch went back to the agent.", ()),
    ("ci", "ci", "Commits on which continuous integration was held, and jobs to mend it.", ("did",)),
)  # fmt: skip
"""What the ledger counts: its name there and here, what it is, and its labels beside the configuration."""


class Figures(Frozen):
    """What there is to show."""

    deliveries: Mapping[tuple[str, str], int]
    """By event and what became of them, since this process began."""
    counts: Mapping[str, Mapping[str, float]]
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


def _metrics(figures: Figures) -> Iterator[Metric]:
    received: Values = {(event, came_to): n for (event, came_to), n in figures.deliveries.items()}
    yield _counters(
        "deliveries",
        "Webhook deliveries by what became of them.",
        ("event", "came_to"),
        received,
    )
    yield _gauges(
        "inbox_deliveries", "Deliveries that are stored and not dealt with.", (), {(): figures.inbox}
    )
    yield _gauges(
        "jobs", "Jobs that have not ended, by state.", ("state",), {(s,): n for s, n in figures.jobs.items()}
    )
    yield _gauges(
        "queue_oldest_seconds", "How long the next job has waited.", (), {(): figures.oldest_seconds}
    )
    yield _gauges("workers", "Workers that live.", (), {(): figures.workers})
    for name, shown, help, labels in LEDGER:
        found = {
            (configuration, *values): number
            for configuration, counts in figures.counts.items()
            for values, number in _labelled(counts, name, len(labels)).items()
        }
        yield _counters(shown, help, ("configuration", *labels), found)
    yield _gauges(  # one that is opened again is counted no more
        "pulls",
        "Pull requests of ours that are closed, by what became of them.",
        ("configuration", "became"),
        {
            (configuration, *became): number
            for configuration, counts in figures.counts.items()
            for became, number in _labelled(counts, "pulls", 1).items()
        },
    )
    yield _run_seconds(figures.counts)
    yield from _rates(figures.counts)


def _rates(counts: Mapping[str, Mapping[str, float]]) -> Iterator[Metric]:
    ended = {name: sum(_labelled(each, "endings", 1).values()) for name, each in counts.items()}
    failed = {
        (name, fault): each.get(f"faults {fault}", 0.0) for name, each in counts.items() for fault in FAULTS
    }
    yield _gauges(
        "failures_per_thousand_jobs",
        "Jobs that ended by a failure, of a thousand, by whose it was.",
        ("configuration", "fault"),
        {key: 1000 * number / (ended[key[0]] or 1) for key, number in failed.items()},
    )
    own = {
        name: sum(number for (each, fault), number in failed.items() if each == name and fault not in FOREIGN)
        for name in counts
    }
    yield _gauges(
        "infrastructure_success_ratio",
        f"Jobs that ended without a failure of ours, of all that ended; not counted: {', '.join(sorted(FOREIGN))}.",
        ("configuration",),
        {(name,): 1 - number / (ended[name] or 1) for name, number in own.items()},
    )


def _run_seconds(counts: Mapping[str, Mapping[str, float]]) -> Metric:
    metric = HistogramMetricFamily(
        "patchwright_run_seconds", "How long runs have worked.", labels=["configuration"]
    )
    bounds = (*map(str, SECONDS), "+Inf")
    for configuration, each in counts.items():
        within = accumulate(each.get(f"seconds_within {bound}", 0.0) for bound in bounds)
        buckets = list(zip(bounds, within, strict=True))
        metric.add_metric([configuration], buckets, sum_value=each.get("seconds", 0.0))
    return metric


def _labelled(counts: Mapping[str, float], name: str, labels: int) -> dict[tuple[str, ...], float]:
    """Of one name, by its labels: the last one may have spaces."""
    found = {
        tuple(key.split(" ", labels)[1:]): number
        for key, number in counts.items()
        if key.partition(" ")[0] == name
    }
    if len(found) <= MOST_VALUES:
        return found
    shown = dict(sorted(found.items(), key=lambda item: -item[1])[:MOST_VALUES])
    for values, number in found.items():
        if values not in shown:
            other = (*values[:-1], "other")
            shown[other] = shown.get(other, 0.0) + number
    return shown


def _counters(name: str, help: str, labels: Iterable[str], values: Values) -> Metric:
    metric = CounterMetricFamily(f"patchwright_{name}", help, labels=list(labels))
    return _filled(metric, values)


def _gauges(name: str, help: str, labels: Iterable[str], values: Values) -> Metric:
    metric = GaugeMetricFamily(f"patchwright_{name}", help, labels=list(labels))
    return _filled(metric, values)


def _filled(metric: CounterMetricFamily | GaugeMetricFamily, values: Values) -> Metric:
    for labels, value in sorted(values.items()):
        metric.add_metric(list(labels), value)
    return metric
