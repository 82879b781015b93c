"""The server's metrics, in Prometheus' text format."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from nmt.version import __version__


class Metrics:
    """Counts requests and their durations by protocol, and translated lines and characters by model."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter("nmt_requests", "Requests", ["protocol", "status"], registry=self._registry)
        self.seconds = Histogram("nmt_request_seconds", "Seconds per request", ["protocol"], registry=self._registry)
        self.lines = Counter("nmt_lines", "Translated lines", ["model"], registry=self._registry)
        self.characters = Counter("nmt_characters", "Translated characters", ["model"], registry=self._registry)
        Gauge("nmt_info", "Version of nmt", ["version"], registry=self._registry).labels(__version__).set(1)
        self._waiting = Gauge("nmt_waiting_lines", "Lines waiting for translation", ["model"], registry=self._registry)
        self._loaded = Gauge("nmt_model_loaded", "Whether a model is loaded", ["model"], registry=self._registry)

    def watch(self, name: str, waiting: Callable[[], int], is_loaded: Callable[[], bool]) -> None:
        """Report a model's current state whenever the metrics are read."""
        self._waiting.labels(name).set_function(waiting)
        self._loaded.labels(name).set_function(is_loaded)

    def text(self) -> bytes:
        """All metrics, in Prometheus' text format."""
        return generate_latest(self._registry)
