"""A model that answers immediately, in its own process, so that everything around it can be measured."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_PROGRAM = """
import asyncio, itertools, json, sys
calls = sys.argv[1] == "calls"
usage = {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11}
numbers = itertools.count()

def body():
    message = {"role": "assistant", "content": "ok"}
    if calls:
        n = next(numbers)
        function = {"name": "run_shell", "arguments": json.dumps({"command": f"{sys.argv[2]} {n}"})}
        message["tool_calls"] = [{"id": f"call_{n}", "type": "function", "function": function}]
    choice = {"index": 0, "finish_reason": "tool_calls" if calls else "stop", "message": message}
    return json.dumps({"id": "x", "object": "chat.completion", "created": 1, "model": "m", "usage": usage,
                       "choices": [choice]}).encode()

async def serve(reader, writer):
    while True:
        try:
            request = await reader.readuntil(b"\\r\\n\\r\\n")
        except asyncio.IncompleteReadError:
            return
        fields = dict(line.lower().split(b": ", 1) for line in request.splitlines()[1:] if line)
        await reader.readexactly(int(fields[b"content-length"]))
        answer = body()
        writer.write(b"HTTP/1.1 200 OK\\r\\ncontent-type: application/json\\r\\ncontent-length: %d\\r\\n\\r\\n"
                     % len(answer) + answer)

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 20)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""


@contextmanager
def instant(*, calls: bool, command: str = "echo step") -> Iterator[str]:
    """Yields the base URL of such a model. `calls`: each reply is the command with another number; otherwise
    it is `ok`.
    """
    arguments = [sys.executable, "-c", _PROGRAM, "calls" if calls else "text", command]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
    finally:
        process.kill()
        process.wait()
