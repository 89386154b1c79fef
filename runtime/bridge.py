"""Relays standard input and output to the server in the same container: the far end of the `exec` transport.

An argument names another socket than that of the actions.

Started by the engine as the container's root, which no command there is and none can become; the server speaks
to nobody else. Imports little, because it starts anew with each connection.
"""

import contextlib
import os
import socket
import sys
import threading
import time

BOOT = "import sys; sys.path.insert(0, sys.argv.pop(1)); from runtime.bridge import main; main()"
NAME = "patchwright"  # of the server's socket in the abstract namespace, which is the container's own
READY = b"\n"  # what the host sends first
START = 20.0  # seconds that the server gets to listen
_PIECE = 1 << 16  # bytes


def main() -> None:
    # The host's HTTP client may drop what comes together with the engine's answer to it, so the host speaks first.
    if os.read(0, 1) != READY:
        return
    server = _connected(sys.argv[1] if len(sys.argv) > 1 else NAME)
    threading.Thread(target=_copy_out, args=(server,), daemon=True).start()
    with contextlib.suppress(OSError):
        while data := os.read(0, _PIECE):
            server.sendall(data)
    os._exit(0)  # the host has hung up; whatever the server still says, it will be asked again


def _copy_out(server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := server.recv(_PIECE):
            while data:
                data = data[os.write(1, data) :]
    os._exit(0)


def _connected(name: str) -> socket.socket:
    deadline = time.monotonic() + START
    while True:
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(f"\0{name}")
        except OSError:
            server.close()
            if time.monotonic() > deadline:
                sys.exit("the server in the container does not listen")
            time.sleep(0.005)
        else:
            return server
