"""An HTTP file server for tests that can be made to fail as real servers do."""

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Server:
    """An HTTP server of a folder.

    ranges, validators, lengths: whether it honours Range, and sends ETag and Content-Length
    cuts: bytes after which the next answers end
    codes: HTTP codes of the next answers
    requests: (path, Range) of the requests so far
    hold: while set, a cut answer waits for `released` instead of ending
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ranges = self.validators = self.lengths = True
        self.cuts: list[int] = []
        self.codes: list[int] = []
        self.requests: list[tuple[str, str | None]] = []
        self.hold = threading.Event()
        self.released = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        byte_range = request.headers.get("Range")
        self.requests.append((request.path, byte_range))
        file = self.folder / request.path.lstrip("/")
        if self.codes or not file.is_file():
            request.send_error(self.codes.pop(0) if self.codes else 404)
            return
        data = file.read_bytes()
        tag, start = f'"{hashlib.sha256(data).hexdigest()[:8]}"', 0
        if byte_range and self.ranges and request.headers.get("If-Range") in (None, tag):
            start = int(byte_range.removeprefix("bytes=").removesuffix("-"))
            if start >= len(data):
                request.send_response(416)
                request.send_header("Content-Range", f"bytes */{len(data)}")
                request.send_header("Content-Length", "0")
                request.end_headers()
                return
            request.send_response(206)
            request.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        else:
            request.send_response(200)
        if self.lengths:
            request.send_header("Content-Length", str(len(data) - start))
        if self.validators:
            request.send_header("ETag", tag)
        request.end_headers()
        cut = self.cuts.pop(0) if self.cuts else len(data)
        request.wfile.write(data[start : start + cut])
        if self.hold.is_set():
            request.wfile.flush()
            self.released.wait(30)

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
