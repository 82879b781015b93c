"""A server of files for tests, that can be made to fail as servers do."""

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Server:
    """An HTTP server of a folder, on which the next answers can be made to fail.

    ranges: whether it honours Range; cuts: after how many bytes the next answers end; codes: that the next answers are
    requests: (path, Range) of those that came; hold: set while an answer that was cut waits instead of ending
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.ranges, self.validators, self.lengths = folder, True, True, True
        self.cuts: list[int] = []
        self.codes: list[int] = []
        self.requests: list[tuple[str, str | None]] = []
        self.hold = threading.Event()
        self.released = threading.Event()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def answer(self, call: BaseHTTPRequestHandler) -> None:
        asked = call.headers.get("Range")
        self.requests.append((call.path, asked))
        file = self.folder / call.path.lstrip("/")
        if self.codes or not file.is_file():
            call.send_error(self.codes.pop(0) if self.codes else 404)
            return
        data = file.read_bytes()
        tag, start = f'"{hashlib.sha256(data).hexdigest()[:8]}"', 0
        if asked and self.ranges and call.headers.get("If-Range") in (None, tag):
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(data):
                call.send_response(416)
                call.send_header("Content-Range", f"bytes */{len(data)}")
                call.send_header("Content-Length", "0")
                call.end_headers()
                return
            call.send_response(206)
            call.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        else:
            call.send_response(200)
        if self.lengths:
            call.send_header("Content-Length", str(len(data) - start))
        if self.validators:
            call.send_header("ETag", tag)
        call.end_headers()
        cut = self.cuts.pop(0) if self.cuts else len(data)
        call.wfile.write(data[start : start + cut])
        if self.hold.is_set():
            call.wfile.flush()
            self.released.wait(30)

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
