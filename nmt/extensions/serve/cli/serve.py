"""`nmt serve`: translate for programs and web pages, over HTTP."""

import os
import signal
import threading

from nmt.cli.command import Command, Parts
from nmt.errors import Interrupted
from nmt.extensions.serve.options import ServeOptions
from nmt.installation import missing_package


def run(options: ServeOptions, parts: Parts) -> None:
    """Serve translations over HTTP, using the protocols of LibreTranslate, DeepL, Marian and OpenAI, and nmt's own.

    Each model is loaded on its first request. SIGHUP reloads the models; SIGTERM and SIGINT stop the server after the
    current requests.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the server runs, there is no model to load again
    signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))  # and nothing to finish
    try:
        from nmt.extensions.serve.models import LOADER
        from nmt.extensions.serve.run import run_server
        from nmt.extensions.serve.scheduler import TRANSLATOR
    except ImportError as error:
        raise missing_package("nmt serve", "serve", error) from None
    number = run_server(options, parts.by_kind["decoder"])
    if any(thread.name in (LOADER, TRANSLATOR) for thread in threading.enumerate()):
        os._exit(128 + number)  # a thread that is still loading or searching would delay or abort the exit
    if number:
        raise Interrupted(number)


COMMAND = Command(
    "serve",
    ServeOptions,
    run,
    kinds=("decoder",),
    positional=("model...",),
    group="translate",
    examples=(
        "nmt serve model",
        "nmt serve en-de=model de-en=model2 --port 8080 --preload",
        "nmt serve model --host 0.0.0.0 --keys keys.txt",
    ),
)
