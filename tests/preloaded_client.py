"""Has a server of `preloaded_command.py` run a command: `preloaded_client.py ADDRESS ARGUMENTS`.

This program imports little, because it starts hundreds of times.
"""

import json
import os
import signal
import socket
import sys

FORWARDED_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


def connect(address: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    return connection


def run(address: str, arguments: list[str]) -> int:
    """Has the server run a command with the files of this process; returns the command's exit code."""
    connection = connect(address)
    request = {"arguments": arguments, "environment": dict(os.environ), "directory": os.getcwd()}
    socket.send_fds(connection, [json.dumps(request).encode() + b"\n"], [0, 1, 2])
    for number in FORWARDED_SIGNALS:
        signal.signal(number, lambda number, _: connection.send(bytes([number])))
    code = int(connection.recv(16))
    # The command has ended. While Python exits, a signal would end this process with another exit code.
    for number in FORWARDED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2:]))
