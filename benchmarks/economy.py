"""Measures the fixed part of a run's first request: what the model reads besides the issue.

A real run in a Docker sandbox with default settings, on a small Python package with tests. The model answers
immediately, and the prompts are read from the run's log. Tokens are bytes divided by four, as in
`benchmarks/context.py`.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.context import BYTES_PER_TOKEN
from benchmarks.endpoint import instant
from benchmarks.measure import Result, report
from patchwright.resolver.events import Entry, Message, SystemPrompt

ISSUE = "The sum is wrong\n\n`add(1, 2)` returns -1.\n"
FILES = {
    "calc/__init__.py": "def add(a, b):\n    return a - b\n",
    "tests/test_calc.py": "import unittest\n\n\nclass Calc(unittest.TestCase):\n    def test(self):\n        pass\n",
    "pyproject.toml": '[project]\nname = "calc"\nversion = "1.0"\n',
}
TARGET = 1_400  # tokens


def measure() -> list[Result]:
    with tempfile.TemporaryDirectory() as name, instant(calls=False) as base_url:
        log = _run(Path(name), base_url)
        return _results([Entry.model_validate_json(line) for line in log.read_bytes().splitlines()])


def _run(directory: Path, base_url: str) -> Path:
    """Returns the log of a run of one step."""
    repository, issue, data = directory / "calc", directory / "issue.md", directory / "data"
    for path, text in FILES.items():
        (repository / path).parent.mkdir(parents=True, exist_ok=True)
        (repository / path).write_text(text)
    who = ("-c", "user.name=Benchmark", "-c", "user.email=benchmark@example.org")
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "All."]):
        subprocess.run(["git", *who, *arguments], cwd=repository, check=True)
    issue.write_text(ISSUE)
    environment = {
        "PATCHWRIGHT_DATA": str(data),
        "PATCHWRIGHT_MODEL": "openai/m",
        "PATCHWRIGHT_MODEL_BASE_URL": base_url,
        "PATCHWRIGHT_MODEL_API_KEY": "key",
    }
    program = Path(sys.executable).with_name("patchwright")
    options = ("--repo", repository, "--issue", issue, "--sandbox", "docker", "--max-steps", "1", "--quiet")
    # The run ends without a patch, so its exit code is not 0.
    subprocess.run([program, "resolve", *options], env=os.environ | environment, capture_output=True)
    return next(data.rglob("events.jsonl"))


def _results(entries: list[Entry]) -> list[Result]:
    events = [entry.event for entry in entries]
    system = next(event for event in events if isinstance(event, SystemPrompt))
    first = next(event for event in events if isinstance(event, Message) and event.source == "initial_prompt")
    parts = {
        "system prompt": len(system.text.encode()),
        "tools": len(json.dumps(system.tools, separators=(",", ":")).encode()),
        "first message without the issue": len(first.text.encode()) - len(ISSUE.encode()),
    }
    rows = parts | {"fixed part of the first request": sum(parts.values())}
    return [
        Result(
            name=name,
            value=size / BYTES_PER_TOKEN,
            unit="tokens",
            floor=None,
            target=TARGET if name not in parts else None,
        )
        for name, size in rows.items()
    ]


if __name__ == "__main__":
    report(measure())
