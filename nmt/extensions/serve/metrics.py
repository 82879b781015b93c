"""Counts of a server, in the text form that Prometheus reads."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from nmt.version import __version__


class Metrics:
    """requests, seconds: by protocol; lines, characters: by model."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter("nmt_requests", "Requests", ["protocol", "status"], registry=self._registry)
        self.seconds = Histogram("nmt_request_seconds", "Seconds a request", ["protocol"], registry=self._registry)
        self.lines = Counter("nmt_lines", "Lines translated", ["model"], registry=self._registry)
        self.characters = Counter("nmt_characters", "Characters translated", ["model"], registry=self._registry)
        Gauge("nmt_info", "The program", ["version"], registry=self._registry).labels(__version__).set(1)
        self._waiting = Gauge("nmt_waiting_lines", "Lines that wait", ["model"], registry=self._registry)
        self._loaded = Gauge("nmt_model_loaded", "Whether a model is loaded", ["model"], registry=self._registry)

    def watch(self, name: str, waiting: Callable[[], int], is_loaded: Callable[[], bool]) -> None:
        """Ask for the state of a model when the counts are read."""
        self._waiting.labels(name).set_function(waiting)
        self._loaded.labels(name).set_function(is_loaded)

    def text(self) -> bytes:
        """All counts."""
        return generate_latest(self._registry)
