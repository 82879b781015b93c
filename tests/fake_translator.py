"""A stand-in translator for tests of the code around one: it waits when a test asks it to."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from nmt.text.pipeline import Pipeline
from nmt.translate.requests import Request
from nmt.translate.results import Candidate, Translation


class FakeTranslator:
    """Translates by capitalising.

    batches: the texts of each batch that has started
    gate: each batch waits until it is open
    held: by a text; its batch waits until this event is set
    error: what a batch raises that is not held; None without one
    pipeline: of the model; None where nobody asks for it
    """

    def __init__(self, batch_tokens: int = 20, replicas: int = 1) -> None:
        self.pipeline: Pipeline | None = None
        self.engine: Any = SimpleNamespace(
            pipeline=None, device="cpu", signature="fake", n_best=1, takes_phrases=False, batch_tokens=batch_tokens
        )
        self.engine.replicas = self.engine.callers = replicas
        self.engine.without_scores = lambda: None
        self.batches: list[list[str]] = []
        self.gate, self.held = threading.Event(), dict[str, threading.Event]()
        self.error: Exception | None = None
        self.gate.set()

    def translate(self, requests: Sequence[Request]) -> list[Translation]:
        texts = [request.text for request in requests]
        self.batches.append(texts)
        for event in (self.gate, *(self.held[text] for text in texts if text in self.held)):
            assert event.wait(30)
        if self.error:
            raise self.error
        return [Translation([Candidate(text.upper(), [], 0.0, 0.0)]) if text else Translation() for text in texts]


async def until(condition: Callable[[], object]) -> None:
    for _ in range(3000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("never")
