"""Every benchmark, one after the other, each in a process of its own: `python -m benchmarks [NAME ...]`.

Those that take minutes are run when they are named, or by the name `long`.
"""

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.measure import RESULTS, Result, table

LONG = ("deliveries", "kills", "many", "reaction", "server_section")
NOT_MEASURES = ("__init__", "__main__", "endpoint", "killer", "measure")


def main(names: list[str]) -> int:
    """Exit code 0 when every benchmark ran; 1 when one failed. A missed target fails nothing."""
    found = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in NOT_MEASURES)
    names = [one for name in names for one in (LONG if name == "long" else (name,))]
    if unknown := set(names) - set(found):
        print(
            f"No such benchmark: {', '.join(sorted(unknown))}. There are: long, {', '.join(found)}.",
            file=sys.stderr,
        )
        return 2
    if not names:  # those that are named come beside what was measured before
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
