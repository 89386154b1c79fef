"""Runs all benchmarks in turn, each in its own process: `python -m benchmarks [NAME ...]`.

Benchmarks that take minutes run only if you name them, or with the name `long`.
"""

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.measure import RESULTS, Result, table

LONG = (
    "conversation_kills",
    "conversations",
    "deliveries",
    "grading",
    "killed_evaluation",
    "kills",
    "many",
    "played",
    "reaction",
    "real_fixes",
    "server_section",
)
NOT_MEASURES = (
    "__init__",
    "__main__",
    "conversation_server",
    "endpoint",
    "grading_fixtures",
    "grading_peer",
    "killer",
    "measure",
    "openhands",
)


def main(names: list[str]) -> int:
    """Returns 0 if every benchmark ran, and 1 if one failed. A missed target is not a failure."""
    here = Path(__file__).parent
    modules = {path.stem for path in here.glob("*.py")} | {
        path.parent.name for path in here.glob("*/__main__.py")
    }
    found = sorted(modules.difference(NOT_MEASURES))
    names = [one for name in names for one in (LONG if name == "long" else (name,))]
    if unknown := set(names) - set(found):
        print(
            f"No such benchmark: {', '.join(sorted(unknown))}. There are: long, {', '.join(found)}.",
            file=sys.stderr,
        )
        return 2
    if not names:  # results of named benchmarks are added to the previous ones
        RESULTS.unlink(missing_ok=True)
    failed = []
    for name in names or [name for name in found if name not in LONG]:
        print(f"{name} ...", file=sys.stderr, flush=True)
        done = subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], stdout=subprocess.DEVNULL)
        if done.returncode:
            failed.append(name)
    if RESULTS.exists():
        print(table([Result.model_validate(row) for row in json.loads(RESULTS.read_text())]))
    if failed:
        print(f"Failed: {', '.join(failed)}.", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
