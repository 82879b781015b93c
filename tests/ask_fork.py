"""python -S -E ask_fork.py SOCKET WORDS...: run `nmt WORDS...` as a fork of the server at a socket (forks.py).

Arguments, folder, environment and streams are this process's, and so are signals and the exit code.
"""

import json
import os
import signal
import socket
import sys
from pathlib import Path

connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.connect(sys.argv[1])
asked = {"words": sys.argv[2:], "folder": str(Path.cwd()), "environment": dict(os.environ), "process": os.getpid()}
socket.send_fds(connection, [json.dumps(asked).encode()], [0, 1, 2])
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(number, lambda number, _frame: connection.sendall(bytes([number])))
code = int(connection.recv(16))
if code < 0:
    signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
    os.kill(os.getpid(), -code)
sys.exit(code)
