"""The server's metrics, in Prometheus' text format. As in vLLM and Triton, the time in the queue is separate from inference."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from nmt.translate.results import Translation
from nmt.version import __version__

DURATION_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
BATCH_BOUNDS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
FAILURES: Final = {
    401: "refused",
    403: "refused",
    404: "not-found",
    405: "not-found",
    413: "too-large",
    421: "refused",
    429: "too-many-requests",
    499: "client-gone",
    503: "unavailable",
    504: "timeout",
}
"""The kind of failure of an HTTP status. Other statuses are `invalid` below 500, and `internal` from 500."""


@dataclass(frozen=True)
class ModelMetrics:
    """The metrics of one model, which remain when it is reloaded.

    queue_seconds: until the first line of a request leaves the queue; inference_seconds: per batch
    target_tokens: of the best translations
    """

    lines: Counter
    characters: Counter
    source_tokens: Counter
    target_tokens: Counter
    queue_seconds: Histogram
    inference_seconds: Histogram
    batch_lines: Histogram

    def count_batch(self, translations: Sequence[Translation], seconds: float) -> None:
        """Count a batch that was translated. seconds: the time it took"""
        self.inference_seconds.observe(seconds)
        self.batch_lines.observe(len(translations))
        self.source_tokens.inc(sum(translation.num_source_tokens for translation in translations))
        self.target_tokens.inc(sum(len(translation.candidate(0).tokens) for translation in translations))


class Metrics:
    """Counts requests and failures by protocol, and lines, tokens and batches by model."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._gauge("nmt_info", "Version of nmt", "version").labels(__version__).set(1)
        self.running = Gauge("nmt_running_requests", "Requests that are being answered", registry=self._registry)
        self._requests = self._counter("nmt_requests", "Requests", "protocol", "status")
        self._failures = self._counter("nmt_failures", "Requests that failed, by kind of failure", "protocol", "kind")
        self._seconds = self._histogram("nmt_request_seconds", "Seconds per request", DURATION_BOUNDS, "protocol")
        self._waiting = self._gauge("nmt_waiting_lines", "Lines waiting for translation", "model")
        self._loaded = self._gauge("nmt_model_loaded", "Whether a model is loaded", "model")
        self._of_models: dict[str, Any] = {
            "lines": self._counter("nmt_lines", "Translated lines", "model"),
            "characters": self._counter("nmt_characters", "Translated characters", "model"),
            "source_tokens": self._counter("nmt_source_tokens", "Source tokens that were translated", "model"),
            "target_tokens": self._counter("nmt_target_tokens", "Tokens of the best translations", "model"),
            "queue_seconds": self._histogram(
                "nmt_queue_seconds", "Seconds in the queue per request", DURATION_BOUNDS, "model"
            ),
            "inference_seconds": self._histogram(
                "nmt_inference_seconds", "Seconds per batch", DURATION_BOUNDS, "model"
            ),
            "batch_lines": self._histogram("nmt_batch_lines", "Lines per batch", BATCH_BOUNDS, "model"),
        }

    def of_model(self, name: str, waiting: Callable[[], int], is_loaded: Callable[[], bool]) -> ModelMetrics:
        """The metrics of a model. waiting, is_loaded: called whenever the metrics are read"""
        self._waiting.labels(name).set_function(waiting)
        self._loaded.labels(name).set_function(is_loaded)
        return ModelMetrics(**{field: metric.labels(name) for field, metric in self._of_models.items()})

    def count(self, protocol: str, status: int, seconds: float) -> None:
        """Count the response to a request. status: HTTP status; seconds: since the request arrived"""
        self._requests.labels(protocol, str(status)).inc()
        self._seconds.labels(protocol).observe(seconds)
        if status >= 400:
            kind = FAILURES.get(status, "invalid" if status < 500 else "internal")
            self._failures.labels(protocol, kind).inc()

    def text(self) -> bytes:
        """All metrics, in Prometheus' text format."""
        return generate_latest(self._registry)

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(name, meaning, labels, registry=self._registry)

    def _gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        return Gauge(name, meaning, labels, registry=self._registry)

    def _histogram(self, name: str, meaning: str, bounds: Sequence[float], *labels: str) -> Histogram:
        return Histogram(name, meaning, labels, registry=self._registry, buckets=bounds)
