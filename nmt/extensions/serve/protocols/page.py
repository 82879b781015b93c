"""The web page for users: three files that load nothing from other servers."""

from pathlib import Path
from typing import Final

from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from nmt import register
from nmt.extensions.serve.calls import Call, Fields
from nmt.extensions.serve.protocol import ClientProtocol
from nmt.extensions.serve.protocols.options import PageOptions

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


@register("protocol", "page", PageOptions)
class Page(ClientProtocol):
    """A web page for users, unless --no-page turns it off."""

    def routes(self) -> list[BaseRoute]:
        """The page at / and its files."""
        return [self._route(path, *file) for path, file in PAGE_FILES.items()] if self.options.page else []

    def _route(self, path: str, name: str, kind: str) -> Route:
        content = (FOLDER / name).read_bytes()

        async def answer(_: Call, __: Fields) -> Response:
            return Response(content, media_type=kind, headers=PAGE_HEADERS)

        return self.route(path, answer, "GET", is_open=True)
