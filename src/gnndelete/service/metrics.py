"""Figures for Prometheus. No label holds an id of a customer's or of a request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

CONTENT_TYPE = CONTENT_TYPE_LATEST

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)


class Metrics:
    """The figures of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Gauge(
            "gnndelete_requests", "Requests by model and state", ["model", "state"], registry=self.registry
        )
        self.oldest = Gauge(
            "gnndelete_oldest_seconds", "Age of the oldest open request by state", ["state"], registry=self.registry
        )
        self.due = Gauge("gnndelete_due_requests", "Open requests by due status", ["status"], registry=self.registry)
        self.ledger = Gauge("gnndelete_ledger_leaves", "Leaves of the ledger", registry=self.registry)
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

    def text(self, figures: dict[str, Any]) -> bytes:
        """All figures, in the format of Prometheus."""
        for gauge in (self.requests, self.oldest, self.due):
            gauge.clear()
        for (model, state), count in figures["counts"].items():
            self.requests.labels(model, state).set(count)
        for state, age in figures["oldest"].items():
            self.oldest.labels(state).set(age)
        for status, count in figures["due"].items():
            self.due.labels(status).set(count)
        self.ledger.set(figures["ledger"])
        return generate_latest(self.registry)
