"""The yardstick of benchmarks/serve.py: a small HTTP server around CTranslate2 that translates each request alone.

python benchmarks/plain_server.py MODEL BEAM THREADS      # MODEL: an export for CTranslate2
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from engine import Translate, ctranslate2


class Handler(BaseHTTPRequestHandler):
    """Answers `{"text": LINE}` in the format of nmt's own protocol."""

    translate: Translate
    protocol_version = "HTTP/1.1"  # connections stay open
    wbufsize = -1  # one write per response

    def do_POST(self) -> None:
        line = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"]
        body = json.dumps({"translations": [{"translation": type(self).translate([line])[0]}]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class Server(ThreadingHTTPServer):
    request_queue_size = 128  # connections that wait to be accepted


def main() -> None:
    model, beam, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    job = {
        "model": model,
        "beam": beam,
        "threads": threads,
        "weights": "default",
        "batch": 0,
        "shortlist": "",
        "length": 0,
    }
    Handler.translate = ctranslate2(job)
    server = Server(("127.0.0.1", 0), Handler)
    print(f"listening on http://127.0.0.1:{server.server_port}", file=sys.stderr, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
