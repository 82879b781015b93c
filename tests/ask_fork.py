"""python -S -E ask_fork.py SOCKET WORDS...: run `nmt WORDS...` as a fork of the server at a socket (forks.py)."""

import contextlib
import json
import os
import signal
import socket
import sys
from pathlib import Path
from types import FrameType

connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.connect(sys.argv[1])
request = {"words": sys.argv[2:], "folder": str(Path.cwd()), "environment": dict(os.environ), "process": os.getpid()}
socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])


def pass_on(number: int, _frame: FrameType | None) -> None:
    with contextlib.suppress(OSError):  # the command has ended
        connection.sendall(bytes([number]))


for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(number, pass_on)
code = int(connection.recv(16))
if code < 0:
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
