"""Replays the played tasks: `python -m benchmarks.played [PAIR ...]`. Needs Docker, and a package index.

The figures of the peer, mini-swe-agent 2.4.6, are those of its own plays of the same tasks by the same person.
`--as-played` replays the replies of the plays before what they showed was improved.
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import Result, report
from benchmarks.played.task import PEER, Replay, Task, load_tasks, replay

MAX_REQUESTS, MAX_BILLED = 0.9, 0.8  # times the peer's


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.played", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="PAIR")
    parser.add_argument("--as-played", action="store_true", help="use the replies of the plays themselves")
    parser.add_argument("--data", type=Path, metavar="DIR", help="keep the runs here, for `patchwright view`")
    options = parser.parse_args(arguments)
    tasks = load_tasks(options.names)
    if not tasks:
        parser.error(f"no such task: {', '.join(options.names)}")
    if options.as_played:
        tasks = [task.model_copy(update={"replies": task.as_played or task.replies}) for task in tasks]
    with tempfile.TemporaryDirectory() as temporary:
        replays = asyncio.run(_replay_all(tasks, options.data or Path(temporary)))
    print(summarize(tasks, replays))
    report(measure(tasks, replays))
    return 0


async def _replay_all(tasks: list[Task], data: Path) -> list[Replay]:
    replays = []
    for task in tasks:
        replays.append(await replay(task, data))
        print(replays[-1].model_dump_json(), file=sys.stderr, flush=True)
    return replays


def summarize(tasks: list[Task], replays: list[Replay]) -> str:
    """Returns a Markdown table with one row for each task."""
    rows = [
        "| Task | Verdict | Requests | Billed tokens | Changed prefix bytes | Seconds |",
        "| --- " * 6 + "|",
    ]
    for task, done in zip(tasks, replays, strict=True):
        peer = task.peer.bill
        rows.append(
            f"| {done.pair} | {done.verdict} | {done.bill.requests} ({peer.requests}) "
            f"| {done.bill.billed:,.0f} ({peer.billed:,.0f}) | {done.bill.changed_bytes} | {done.seconds:.0f} |"
        )
    return "\n".join(rows)


def measure(tasks: list[Task], replays: list[Replay]) -> list[Result]:
    """Returns the sums over all tasks, the peer's sums, and the number of tasks that are not solved."""
    peers = [task.peer.bill for task in tasks]
    requests, peer_requests = (
        sum(each.bill.requests for each in replays),
        sum(each.requests for each in peers),
    )
    billed, peer_billed = sum(each.bill.billed for each in replays), sum(each.billed for each in peers)
    changed = sum(each.bill.changed_bytes for each in replays)
    unsolved = sum(not each.is_solved for each in replays)
    seconds = sum(each.seconds for each in replays)
    return [
        Result(
            name="played_requests", value=requests, unit="", floor=None, peers={PEER: peer_requests},
            target=MAX_REQUESTS * peer_requests,
        ),
        Result(
            name="played_billed", value=billed, unit="tokens", floor=None, peers={PEER: peer_billed},
            target=MAX_BILLED * peer_billed,
        ),
        Result(name="played_changed_prefix", value=changed, unit="bytes", floor=None, target=0),
        Result(name="played_unsolved", value=unsolved, unit="", floor=None, target=0),
        Result(name="played_seconds", value=seconds, unit="s", floor=None, target=None),
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
