"""Measures the time from the start of `patchwright resolve` to its first request to the model, in Docker, with a built
image.

`first_request` waits for the tests on the untouched code, which take 0.1 s; the first message contains their result.
`first_request_without_tests` is the same repository without tests, so that nothing is waited for. Floor, in the same
run: `docker run` of the base image, from its start to its first output. The `cpu` rows are the processor seconds of
the process until its end, which say more than the time on a busy machine; they include the import of litellm.

The modules are compiled, as pip leaves them: a checkout whose environment forbids bytecode takes 0.4 s longer.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmarks.economy import FILES, ISSUE
from benchmarks.measure import Result, report
from benchmarks.sandbox import BASE
from patchwright.resolver.llm.probe import PROBE_NUMBER, PROBE_TOOL

TIMES = 5
REPLY = (
    b'{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop",'
    b'"message":{"role":"assistant","content":"ok"}}],"usage":{"prompt_tokens":10,"completion_tokens":1,'
    b'"total_tokens":11}}'
)
PROBE_REPLY = REPLY.replace(
    b'"content":"ok"',
    b'"content":"","tool_calls":[{"id":"a","type":"function","function":{"name":"%b","arguments":"{\\"number\\":%d}"}}]'
    % (PROBE_TOOL.name.encode(), PROBE_NUMBER),
)
TARGET = 1.0  # seconds


class Model(BaseHTTPRequestHandler):
    """A model that answers immediately, and records the time of each request."""

    requested_at: list[float] = []  # noqa: RUF012  # of all requests

    def do_POST(self) -> None:
        requested_at = time.perf_counter()
        body = self.rfile.read(int(self.headers["content-length"]))
        is_probe = PROBE_TOOL.name.encode() in body
        if not is_probe:  # The first run tests the model once; this result counts for a week.
            self.requested_at.append(requested_at)
        reply = PROBE_REPLY if is_probe else REPLY
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, format: str, *args: object) -> None:
        pass


def measure() -> list[Result]:
    """Returns medians in seconds, over runs that alternate with the floor."""
    model = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=model.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        tested = _repository(directory / "tested", FILES)
        bare = _repository(
            directory / "bare", {path: text for path, text in FILES.items() if path[:5] != "tests"}
        )
        (directory / "issue.md").write_text(ISSUE)
        _resolve(tested, directory, model.server_port)  # builds the image and fills the caches
        runs = [
            (
                _resolve(tested, directory, model.server_port),
                _resolve(bare, directory, model.server_port),
                _floor(),
            )
            for _ in range(TIMES)
        ]
    with_tests, without_tests, floors = zip(*runs, strict=True)
    floor = statistics.median(floors)
    results = []
    for name, timings in (("first_request", with_tests), ("first_request_without_tests", without_tests)):
        seconds, cpu = (statistics.median(values) for values in zip(*timings, strict=True))
        results += [
            Result(name=name, value=seconds, unit="s", floor=floor, target=TARGET),
            Result(name=f"{name}_cpu", value=cpu, unit="s", floor=None, target=None),
        ]
    return results


def _resolve(repository: Path, directory: Path, port: int) -> tuple[float, float]:
    """Returns the seconds to the first request, and the processor seconds of the whole process."""
    environment = {
        "PATCHWRIGHT_DATA": str(directory / "data"),
        "PATCHWRIGHT_MODEL": "openai/m",
        "PATCHWRIGHT_MODEL_BASE_URL": f"http://127.0.0.1:{port}/v1",
        "PATCHWRIGHT_MODEL_API_KEY": "key",
        "PYTHONPYCACHEPREFIX": str(directory / "bytecode"),
    }
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    program = Path(sys.executable).with_name("patchwright")
    options = ("--repo", repository, "--issue", directory / "issue.md", "--sandbox", "docker")
    Model.requested_at.clear()
    before, started_at = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    # The run ends without a patch, so its exit code is not 0.
    subprocess.run(
        [program, "resolve", *options, "--max-steps", "1", "--quiet"],
        env=inherited | environment,
        capture_output=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Model.requested_at[0] - started_at, cpu


def _floor() -> float:
    started_at = time.perf_counter()
    subprocess.run(["docker", "run", "--rm", "--network", "none", BASE, "echo", "hi"], stdout=subprocess.PIPE)
    return time.perf_counter() - started_at


def _repository(path: Path, files: dict[str, str]) -> Path:
    who = ("-c", "user.name=Benchmark", "-c", "user.email=benchmark@example.org")
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "All."]):
        subprocess.run(["git", *who, *arguments], cwd=path, check=True)
    return path


if __name__ == "__main__":
    report(measure())
