"""From test runs to a verdict: pure, and the only place where one is decided."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from resolver.domain import Patch, Result, SuiteRun, Verdict, VerdictKind

BAD: tuple[Result, ...] = ("failed", "error")
NOTHING_COLLECTED = 5  # pytest's exit code
OUTPUT = 20_000  # characters of several suites' output together


@dataclass(frozen=True)
class Brought:
    """The tests that a patch changes or adds, as it has them, in runs of their own."""

    files: frozenset[str]
    """The test files that it changes, adds or deletes."""
    alone: bool
    """Whether only these files were run; else all tests were."""
    after: SuiteRun
    """With the whole patch, but how tests run as at base."""
    again: SuiteRun | None = None
    """A second run of at least those that failed; None when none did."""
    before: SuiteRun | None = None
    """On the base code, with what does not count as a failure there marked skipped; None: nothing to find out."""
    before_again: SuiteRun | None = None
    """A second run of at least those that failed there and passed with the patch."""

    def shows(self, test: str) -> bool:
        """Whether the test, were it still there, would be among those that were run."""
        return not self.alone or file_of(test) in self.files


@dataclass(frozen=True)
class Evidence:
    """What was run of one suite to judge a patch."""

    before: SuiteRun
    """The repository's own tests at base."""
    after: SuiteRun
    """The same tests, as they are at base, on the code of the patch."""
    before_again: SuiteRun | None = None
    """A second run at base of at least what `after` shows to differ; None: nothing differs, or it cannot be had."""
    again: SuiteRun | None = None
    """The same with the patch."""
    delivered: SuiteRun | None = None
    """The patch whole, with its own tests and its own way of running them: at least what `after` shows to be broken.
    None: it changes neither."""
    brought: Brought | None = None
    product: bool = True
    """Whether the patch changes anything but tests and how they run."""
    partial: bool = False
    """Only tests that the change may affect were run."""


@dataclass(frozen=True)
class Touched:
    """What a patch does to tests, as its text shows it."""

    weakened: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    set_aside: tuple[str, ...] = ()


NOTHING_TOUCHED = Touched()


def judge(patch: Patch, evidence: Evidence | None, touched: Touched = NOTHING_TOUCHED) -> Verdict:
    """The verdict as `Verdict` defines it; no evidence: the repository has no suite."""
    if patch.empty:
        return Verdict(kind="empty", reason="The run ended without a change to the code.")
    found = Verdict(
        kind="untested",
        reason="The repository has no tests that were found, and none are configured.",
        weakened=touched.weakened,
        deleted=touched.deleted,
        set_aside=touched.set_aside,
    )
    if evidence is None:
        return found
    before, after = evidence.before, evidence.after
    if before.problem or after.problem:
        kind, reason = _without_comparison(evidence)
    elif before.results or after.results:
        found = _of_tests(found, evidence)
        kind, reason = _decided(found, evidence)
    else:
        kind, reason = _by_exit_code(evidence, found.set_aside)
    runs = {"before": before, "after": _with_brought(evidence), "partial": evidence.partial}
    return _reviewed(found.model_copy(update={"kind": kind, "reason": reason, **runs}))


def file_of(test: str) -> str:
    """The file in an id that begins with one."""
    return test.partition("::")[0]


def result_of(run: SuiteRun, test: str) -> Result | None:
    """How a test did, or its file when that could not even be collected; None: it was not there."""
    return run.results.get(test) or run.results.get(file_of(test))


def broken(before: SuiteRun, after: SuiteRun) -> tuple[str, ...]:
    """The tests that passed before and fail after, in order of their names."""
    passed = (
        test for test, result in before.results.items() if result == "passed" and test not in before.flaky
    )
    return tuple(sorted(test for test in passed if result_of(after, test) in BAD))


def mended(before: SuiteRun, after: SuiteRun) -> tuple[str, ...]:
    """The tests that failed before and pass after, in order of their names."""
    passes = (
        test for test, result in after.results.items() if result == "passed" and test not in before.flaky
    )
    return tuple(sorted(test for test in passes if result_of(before, test) in BAD))


def _of_tests(found: Verdict, evidence: Evidence) -> Verdict:
    """What the runs show of single tests."""
    before, after, again = evidence.before, evidence.after, evidence.again or evidence.after
    suspects, candidates = broken(before, after), mended(before, after)
    base_again = evidence.before_again or before
    # What a second run does not show to differ, such as one that had a problem, clears nobody.
    flaky = {test for test in suspects if result_of(again, test) in ("passed", "skipped")}
    flaky |= {test for test in suspects if result_of(base_again, test) in BAD}
    flaky |= {test for test in candidates if result_of(again, test) in (*BAD, "skipped")}
    flaky |= {test for test in candidates if result_of(base_again, test) == "passed"}
    failing = [test for test in suspects if test not in flaky]
    whole = evidence.delivered
    rewritten = [test for test in failing if whole is not None and result_of(whole, test) not in BAD]
    newly_failing = [test for test in failing if test not in rewritten]
    newly_passing = [test for test in candidates if test not in flaky]
    missing = [] if evidence.partial else _missing(evidence, rewritten)
    still_failing: tuple[str, ...] = ()
    on_old_code: dict[str, Result] = {}
    if (brought := evidence.brought) is not None:
        still_failing, theirs, unsure = _of_brought(before, brought)
        flaky |= set(unsure)
        newly_passing = sorted({*newly_passing, *theirs} - flaky - set(still_failing))
        on_old_code = _on_old_code(before, brought)
    return found.model_copy(
        update={
            "newly_passing": tuple(newly_passing),
            "newly_failing": tuple(newly_failing),
            "flaky": tuple(sorted(flaky | set(before.flaky))),
            "missing": tuple(missing),
            "rewritten": tuple(rewritten),
            "on_old_code": on_old_code,
            "still_failing": still_failing,
        }
    )


def _decided(found: Verdict, evidence: Evidence) -> tuple[VerdictKind, str]:
    """Kind and reason, by what was found of the single tests: the worst that is true of them."""
    if found.newly_failing:
        failing = f"{_tests(found.newly_failing)} passed without the patch and failed with it, twice."
        return "regressed", failing
    if found.rewritten:
        was = "passed without the patch and failed with it"
        return "unproven", f"{_tests(found.rewritten)} {was}, as written before the patch changed the tests."
    if found.missing:
        return "unproven", f"{_tests(found.missing)} passed without the patch and did not run with it."
    if found.still_failing:
        return "unproven", f"{_tests(found.still_failing)} that the patch brings failed with it, twice."
    if evidence.brought and evidence.brought.after.problem:
        problem = evidence.brought.after.problem
        return "unproven", f"The tests that the patch brings could not be judged: {problem}."
    if found.newly_passing:
        mended = f"{_tests(found.newly_passing)} failed without the patch and passed with it; none broke."
        return "fixed", mended
    return "unproven", _no_sign(evidence, found.set_aside)


def _no_sign(evidence: Evidence, set_aside: tuple[str, ...]) -> str:
    """Why no test shows the mend, as far as the runs can tell."""
    before, brought = evidence.before, evidence.brought
    if not evidence.product and set_aside:
        return (
            f"The tests were run without the change to {_first(set_aside)}, which can decide how tests run."
        )
    if not evidence.product:
        return "The patch changes tests alone, so no test can show a mend of the code."
    new = brought.after.results.keys() - before.results.keys() if brought else ()
    if brought and brought.before and any(brought.before.results.get(test) == "passed" for test in new):
        return "The patch's own tests pass without the rest of it, so they do not show the mend."
    if before.failed and not before.passed and not evidence.after.passed:
        lack = "they may need what the sandbox has not, such as a network or a service"
        return f"All tests fail without the patch and with it: {lack}."
    return "No test that failed without the patch passes with it, so none shows the mend."


def _missing(evidence: Evidence, rewritten: list[str]) -> list[str]:
    """What passed at base and is not run, or skipped, with the patch: for its code, or for what it does to tests."""
    away, brought = ("skipped", None), evidence.brought
    return sorted(
        test
        for test, result in evidence.before.results.items()
        if result == "passed" and test not in evidence.before.flaky and test not in rewritten
        if result_of(evidence.after, test) in away
        or (
            brought
            and not brought.after.problem
            and brought.shows(test)
            and result_of(brought.after, test) in away
        )
    )


def _of_brought(
    before: SuiteRun, brought: Brought
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Of the tests that the patch brings: those that fail with it, those that show its mend, those that waver."""
    again = brought.again or brought.after
    known = {test for test, result in before.results.items() if result in BAD} | set(before.flaky)
    failed = [test for test, result in brought.after.results.items() if result in BAD and test not in known]
    waver = {test for test in failed if result_of(again, test) in ("passed", "skipped")}
    shown: tuple[str, ...] = ()
    if brought.before is not None and not brought.before.problem and not brought.after.problem:
        own = _own_failing(before, brought)
        shown = tuple(test for test in mended(brought.before, brought.after) if test not in own)
        sure = brought.before_again or brought.before
        waver |= {test for test in shown if result_of(sure, test) == "passed"}
        waver |= {test for test in shown if result_of(again, test) in BAD}
    return (
        tuple(sorted(test for test in failed if test not in waver)),
        tuple(test for test in shown if test not in waver),
        tuple(sorted(waver)),
    )


def _on_old_code(before: SuiteRun, brought: Brought) -> dict[str, Result]:
    """What `Verdict.on_old_code` tells: not of tests that failed at base anyway."""
    if brought.before is None or brought.before.problem or brought.after.problem:
        return {}
    told = {
        test: (result_of(before, test), result_of(brought.before, test)) for test in brought.after.results
    }
    return {test: old for test, (known, old) in told.items() if old and old != known and known not in BAD}


def _with_brought(evidence: Evidence) -> SuiteRun:
    """The run with the patch as a reader takes it: each test as the patch has it, where that was run."""
    after, brought = evidence.after, evidence.brought
    if brought is None or brought.after.problem or after.problem:
        return after
    own = {test: result for test, result in after.results.items() if file_of(test) not in brought.files}
    if not after.results:
        return after
    output = (
        after.output if broken(evidence.before, after) or not brought.after.failed else brought.after.output
    )
    failing = _own_failing(evidence.before, brought)
    theirs = {test: result for test, result in brought.after.results.items() if test not in failing}
    return after.model_copy(update={"results": {**own, **theirs}, "output": output})


def _own_failing(before: SuiteRun, brought: Brought) -> frozenset[str]:
    """The repository's own tests that failed: where all run together, the patch's could make them pass."""
    return frozenset(
        test
        for test, result in before.results.items()
        if result in BAD and "::" in test and file_of(test) not in brought.files
    )


def _by_exit_code(evidence: Evidence, set_aside: tuple[str, ...]) -> tuple[VerdictKind, str]:
    """The verdict on a command that reports no single tests."""
    before, after = evidence.before, evidence.after
    ok = before.exit_code == 0, after.exit_code == 0
    if ok == (True, False):
        if (evidence.again or after).exit_code == 0:
            return "unproven", "The test command failed once and passed once with the patch: it is flaky."
        if evidence.delivered and evidence.delivered.exit_code == 0:
            return (
                "unproven",
                "The test command failed with the patch until the tests were taken from the patch as well.",
            )
        return "regressed", "The test command passed without the patch and failed with it, twice."
    if ok == (False, True) and before.flaky:
        return "unproven", "The test command failed once and passed once without the patch: it is flaky."
    if evidence.brought and evidence.brought.after.exit_code != 0 and ok[1]:
        return "unproven", "The test command failed with the tests that the patch brings."
    if ok == (False, True):
        return "fixed", "The test command failed without the patch and passed with it, as a whole."
    if not evidence.product:
        return "unproven", _no_sign(evidence, set_aside)
    same = "passed" if ok[0] else "failed"
    return "unproven", f"The test command {same} without the patch and with it, and names no single tests."


def _without_comparison(evidence: Evidence) -> tuple[VerdictKind, str]:
    """The verdict when at least one side is no test run."""
    before, after, again = evidence.before, evidence.after, evidence.again
    if before.problem and after.problem:
        return "untested", f"The tests could not be run, with the patch or without it: {before.problem}."
    if before.problem:
        return "unproven", f"The tests ran with the patch but not without it: {before.problem}."
    if again and again.problem and after.exit_code not in (0, NOTHING_COLLECTED):
        if evidence.delivered and not evidence.delivered.problem:
            return "unproven", f"The tests ran with the patch only as the patch has them: {after.problem}."
        return "regressed", f"The tests ran without the patch but not with it, twice: {after.problem}."
    return "unproven", f"The tests ran without the patch but not with it: {after.problem}."


def _reviewed(verdict: Verdict) -> Verdict:
    """What the runs show, less what a person has to look at first: `fixed` is not said over weaker tests."""
    if verdict.kind != "fixed":
        return verdict
    if verdict.weakened or verdict.deleted:
        what = verdict.weakened[0] if verdict.weakened else f"The patch deletes {verdict.deleted[0]}."
        reason = f"Tests show the mend, but the patch also takes from the tests: {what}"
    elif verdict.set_aside:
        changes = _first(verdict.set_aside)
        reason = f"Tests show the mend, but the patch also changes {changes}, which can decide how tests run."
    else:
        return verdict
    return verdict.model_copy(update={"kind": "unproven", "reason": reason})


def _first(paths: tuple[str, ...]) -> str:
    return f"{paths[0]} and {len(paths) - 1} more" if len(paths) > 1 else paths[0]


def merged(verdicts: tuple[Verdict, ...]) -> Verdict:
    """One verdict from those on several suites: as bad as the worst, and `fixed` when one is and all could be run."""
    if len(verdicts) == 1:
        return verdicts[0]
    kinds = {verdict.kind for verdict in verdicts}
    deciding = next(
        verdict
        for kind in ("regressed", "untested", "unproven", "fixed", "empty")
        for verdict in verdicts
        if verdict.kind == kind and not (kind == "unproven" and "fixed" in kinds and not _objects(verdict))
    )
    kind: VerdictKind = deciding.kind
    if kind == "untested" and len(kinds) > 1:
        kind = "unproven"
    return Verdict(
        kind=kind,
        newly_passing=_all(verdict.newly_passing for verdict in verdicts),
        newly_failing=_all(verdict.newly_failing for verdict in verdicts),
        flaky=_all(verdict.flaky for verdict in verdicts),
        missing=_all(verdict.missing for verdict in verdicts),
        rewritten=_all(verdict.rewritten for verdict in verdicts),
        on_old_code={test: old for verdict in verdicts for test, old in verdict.on_old_code.items()},
        still_failing=_all(verdict.still_failing for verdict in verdicts),
        weakened=verdicts[0].weakened,
        deleted=verdicts[0].deleted,
        set_aside=verdicts[0].set_aside,
        partial=any(verdict.partial for verdict in verdicts),
        reason=deciding.reason,
        before=_as_one([verdict.before for verdict in verdicts]),
        after=_as_one([verdict.after for verdict in verdicts]),
    )


def _objects(verdict: Verdict) -> bool:
    """Whether a suite stands in the way of another's `fixed`, not merely without a sign of the mend."""
    runs = verdict.before, verdict.after
    bad = (verdict.missing, verdict.rewritten, verdict.still_failing, verdict.weakened, verdict.deleted)
    return any(bad) or bool(verdict.set_aside) or any(run is None or run.problem for run in runs)


def _all(names: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(names)))


def _as_one(runs: Sequence[SuiteRun | None]) -> SuiteRun | None:
    """Several suites' runs as one: their tests have ids of their own."""
    had = [run for run in runs if run is not None]
    if len(had) < 2:
        return had[0] if had else None
    worst = next((run for run in had if run.problem), None) or next(
        (run for run in had if run.exit_code), had[0]
    )
    return SuiteRun(
        command="; ".join(run.command for run in had),
        why=" ".join(dict.fromkeys(run.why for run in had)),
        results={test: result for run in had for test, result in run.results.items()},
        exit_code=worst.exit_code,
        seconds=sum(run.seconds for run in had),
        output="\n".join(f"$ {run.command}\n{run.output[-OUTPUT // len(had) :]}" for run in had),
        flaky=_all(run.flaky for run in had),
        problem=worst.problem,
    )


def _tests(names: tuple[str, ...] | list[str]) -> str:
    return "1 test" if len(names) == 1 else f"{len(names)} tests"
