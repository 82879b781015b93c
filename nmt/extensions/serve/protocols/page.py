"""A page for people: three files, and nothing that is fetched from elsewhere."""

from pathlib import Path
from typing import Final

from starlette.responses import Response
from starlette.routing import Route

from nmt.extensions.serve.calls import Call, Fields
from nmt.extensions.serve.protocols.own import error_shape
from nmt.extensions.serve.service import Service

FOLDER: Final = Path(__file__).parents[1] / "page"
PAGE_FILES: Final = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}
PAGE_HEADERS: Final = {
    "content-security-policy": "default-src 'self'; img-src data:; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


def routes(service: Service) -> list[Route]:
    """The page at / and its files, unless it is switched off."""

    def route(path: str, name: str, kind: str) -> Route:
        content = (FOLDER / name).read_bytes()

        async def answer(_: Call, __: Fields) -> Response:
            return Response(content, media_type=kind, headers=PAGE_HEADERS)

        return Route(path, service.endpoint("page", answer, error_shape, is_open=True), methods=["GET"])

    return [route(path, *file) for path, file in PAGE_FILES.items()] if service.options.page else []
