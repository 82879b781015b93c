"""`nmt serve`: translate for programs and web pages, by HTTP."""

import os
import threading

from nmt.cli.command import Command, Parts
from nmt.errors import Interrupted
from nmt.extensions.serve.options import ServeOptions
from nmt.installation import missing_package


def run(options: ServeOptions, parts: Parts) -> None:
    """Answer requests for translations: LibreTranslate's protocol, DeepL's, Marian's, OpenAI's, and our own.

    Models are loaded when they are asked for first. HUP reads them again; TERM and INT end the server after the requests that
    it has begun.
    """
    try:
        from nmt.extensions.serve.models import LOADER
        from nmt.extensions.serve.run import run_server
        from nmt.extensions.serve.scheduler import TRANSLATOR
    except ImportError as error:
        raise missing_package("nmt serve", "serve", error) from None
    number = run_server(options, parts.by_kind["decoder"])
    if any(thread.name in (LOADER, TRANSLATOR) for thread in threading.enumerate()):
        os._exit(128 + number)  # a thread that loads or searches would hold up the end of the program, or abort it
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
