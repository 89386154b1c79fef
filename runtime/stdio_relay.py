"""Relays standard input and output to a server in the same container. The host starts this program through
`docker exec`.

Without an argument, the relay connects to the action server; an argument can name the socket of another server.
The relay runs as the container's root, because the action server accepts connections only from root. The agent's
commands cannot become root. The relay imports few modules, because a new relay starts for each connection.
"""

import contextlib
import os
import socket
import sys
import threading
import time

BOOTSTRAP_CODE = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from patchwright.runtime.stdio_relay import main; main()"
)
# Name of the server's socket in the abstract namespace, which belongs to the container alone.
ABSTRACT_SOCKET = "patchwright"
READY_BYTE = b"\n"  # The first byte that the host sends.
CONNECT_TIMEOUT = 20.0  # Seconds in which the server must start to listen.
_CHUNK_SIZE = 1 << 16  # bytes


def main() -> None:
    # The host sends first. Its HTTP client may drop bytes that arrive together with the engine's response.
    if os.read(0, 1) != READY_BYTE:
        return
    server = _connect(sys.argv[1] if len(sys.argv) > 1 else ABSTRACT_SOCKET)
    threading.Thread(target=_copy_out, args=(server,), daemon=True).start()
    with contextlib.suppress(OSError):
        while data := os.read(0, _CHUNK_SIZE):
            server.sendall(data)
    os._exit(0)  # The host has disconnected and will repeat the request.


def _copy_out(server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := server.recv(_CHUNK_SIZE):
            while data:
                data = data[os.write(1, data) :]
    os._exit(0)


def _connect(name: str) -> socket.socket:
    deadline = time.monotonic() + CONNECT_TIMEOUT
    while True:
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(f"\0{name}")
        except OSError:
            server.close()
            if time.monotonic() > deadline:
                sys.exit("the server in the container is not listening")
            time.sleep(0.005)
        else:
            return server
