"""Figures for Prometheus. No label holds an id of a customer's or of a request.

What a process did is counted in the process: the server's on its `/metrics`, a worker's of its own on ``worker --metrics``.
Where requests stand is read from the database at each scrape, for the tenant of the key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, Info, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from gnndelete import __version__

CONTENT_TYPE = CONTENT_TYPE_LATEST

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)

#: Where requests stand: name, what it says, and the labels of the keys in the figures.
STANDING = (
    ("requests", "Requests by model and state", ("model", "state")),
    ("oldest_seconds", "Age of the oldest open request by state", ("state",)),
    ("due_requests", "Open requests by due status", ("status",)),
    ("late_requests", "Requests that are not suppressed in the promised time", ()),
    ("next_due_seconds", "Seconds until the next request of a model must have new weights", ("model",)),
    ("segments", "Segments on top of the weights of a model", ("model",)),
    ("regrows", "New weights that are being made or failed, by model and state", ("model", "state")),
    ("outbox_messages", "Webhooks that wait to be delivered", ()),
    ("ledger_leaves", "Leaves of the ledger", ()),
    ("disk_free_bytes", "Free space where the home of the service is", ()),
)


class Metrics:
    """The figures of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        Info("gnndelete_build", "The software that runs", registry=self.registry).info({"version": __version__})
        self.steps = Histogram(
            "gnndelete_step_seconds", "Seconds per step", ["step"], buckets=_BUCKETS, registry=self.registry
        )
        self.failures = Counter(
            "gnndelete_step_failures", "Steps that failed", ["step", "code"], registry=self.registry
        )
        self.verdicts = Counter("gnndelete_verdicts", "Verdicts of audits", ["verdict"], registry=self.registry)
        self.http = Histogram(
            "gnndelete_http_seconds", "Seconds per call", ["route", "status"], buckets=_BUCKETS, registry=self.registry
        )
        self.webhooks = Counter("gnndelete_webhooks", "Webhooks by outcome", ["outcome"], registry=self.registry)

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Measure a step that succeeds."""
        start = perf_counter()
        yield
        self.steps.labels(step).observe(perf_counter() - start)

    def text(self, standing: Mapping[str, Any]) -> bytes:
        """All figures, in the format of Prometheus.

        Args:
            standing: Where requests stand, by the names in `STANDING`: a number, or numbers by their labels.
        """
        registry = CollectorRegistry()
        registry.register(_Standing(standing))
        return bytes(generate_latest(self.registry)) + bytes(generate_latest(registry))


class _Standing:
    """Figures that were read just now."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        self._found = found

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for name, said, labels in STANDING:
            family = GaugeMetricFamily(f"gnndelete_{name}", said, labels=labels)
            values = self._found[name] if labels else {(): self._found[name]}
            for key, value in values.items():
                family.add_metric([key] if isinstance(key, str) else list(key), value)
            yield family
