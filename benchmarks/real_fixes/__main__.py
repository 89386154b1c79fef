"""Verifies the patches of pairs and reports what was right: `python -m benchmarks.real_fixes [PAIR ...]`.

A PAIR is a name such as `attrs` or `npm:qs`. Without one, a sample of 8 pairs runs; `--all` runs all. Each
result is added to the file of `--results`. A trial whose result is in that file does not run again, so the
command continues where it was stopped.
"""

import argparse
import asyncio
import os
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.measure import Result, report
from benchmarks.real_fixes.patches import make_patches
from benchmarks.real_fixes.trial import FIX_KINDS, TrialResult, run_trial
from patchwright.evaluation.release_pairs import Pair, Registries, load_pairs


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real_fixes", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="PAIR")
    parser.add_argument("--all", action="store_true", help="run all pairs")
    parser.add_argument("--sample", type=int, default=8, metavar="N", help="run N pairs (always the same)")
    parser.add_argument(
        "--patch", action="append", help="run only this patch of each pair, such as `upstream`"
    )
    parser.add_argument("--results", type=Path, default=Path("real-fixes.jsonl"), help="default: %(default)s")
    parser.add_argument(
        "--at-once", type=int, default=1, metavar="N", help="number of pairs that run at once"
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="keep the runs here, for `patchwright view`")
    options = parser.parse_args(arguments)
    pairs = [pair for pair in load_pairs() if _is_named(pair, options.names)]
    if not options.names and not options.all:
        pairs = random.Random(16).sample(pairs, min(options.sample, len(pairs)))
    if not pairs:
        parser.error(f"no such pair: {', '.join(options.names)}")
    asyncio.run(_run(pairs, options))
    ids = {get_pair_id(pair) for pair in pairs}
    results = [each for each in read_results(options.results) if each.pair in ids]
    report(measure(results))
    print(summarize(results))
    return 0


def get_pair_id(pair: Pair) -> str:
    return f"{pair.registry}:{pair.name}"


def read_results(path: Path) -> list[TrialResult]:
    if not path.exists():
        return []
    return [TrialResult.model_validate_json(line) for line in path.read_text().splitlines()]


def measure(results: list[TrialResult]) -> list[Result]:
    """Returns the share of right patches that are called fixed or conditional, and the number of wrong ones.

    Pairs for which other kinds of verdict are right, too, are no part of the share.
    """
    provable = {get_pair_id(pair) for pair in load_pairs() if set(pair.verdicts) <= set(FIX_KINDS)}
    upstream = [each for each in results if each.patch == "upstream" and each.pair in provable]
    recall = 100 * sum(each.kind in FIX_KINDS for each in upstream) / max(1, len(upstream))
    false = sum(each.kind in FIX_KINDS for each in results if each.patch != "upstream")
    return [
        Result(name="real_fixes_recall", value=recall, unit="%", better="higher", floor=None, target=95),
        Result(name="real_fixes_false", value=false, unit="", floor=None, target=0),
    ]


def summarize(results: list[TrialResult]) -> str:
    """Returns the number of verdicts of each kind, and every trial whose verdict is wrong."""
    upstream = [each for each in results if each.patch == "upstream"]
    wrong_patches = [each for each in results if each.patch != "upstream"]
    rows = [
        f"verdicts on right patches: {dict(Counter(each.kind for each in upstream))}",
        f"verdicts on wrong patches: {dict(Counter(each.kind for each in wrong_patches))}",
        f"seconds: {sum(each.seconds for each in results):.0f}",
    ]
    rows += [
        f"WRONG {each.pair} {each.patch}: {each.kind}: {each.reason[:200]}"
        for each in results
        if not each.is_right
    ]
    return "\n".join(rows)


def _is_named(pair: Pair, names: list[str]) -> bool:
    return not names or pair.name in names or get_pair_id(pair) in names


async def _run(pairs: list[Pair], options: argparse.Namespace) -> None:
    known = {(each.pair, each.patch) for each in read_results(options.results)}
    gate = asyncio.Semaphore(options.at_once)
    registries = Registries.from_environment(os.environ)

    async def run_pair(pair: Pair) -> None:
        async with gate:
            old = await asyncio.to_thread(registries.download, pair.registry, pair.name, pair.old)
            new = await asyncio.to_thread(registries.download, pair.registry, pair.name, pair.new)
            with tempfile.TemporaryDirectory(prefix="real-fix-data-") as temporary:
                data = options.data / get_pair_id(pair).replace(":", "-") if options.data else Path(temporary)
                for name, patched in make_patches(pair.registry, old, new).items():
                    if (get_pair_id(pair), name) in known or name not in (options.patch or [name]):
                        continue
                    result = await run_trial(pair, name, old, patched, data)
                    with options.results.open("a") as file:
                        file.write(result.model_dump_json() + "\n")
                    mark = "ok   " if result.is_right else "WRONG"
                    text = f"{mark} {result.pair} {name}: {result.kind} ({result.seconds:.0f} s) {result.reason[:150]}"
                    print(text, file=sys.stderr, flush=True)

    await asyncio.gather(*(run_pair(pair) for pair in pairs))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
