"""Reports in JSON, each as its runner writes it."""

from collections.abc import Iterator

from resolver.domain import Result
from resolver.suites.reports.collected import Collected, Lenient, Unfit
from resolver.suites.testreport import MAX_ID, Report

_JEST: dict[str, Result] = {
    "passed": "passed",
    "failed": "failed",
    "pending": "skipped",
    "skipped": "skipped",
    "todo": "skipped",
    "disabled": "skipped",
}
_RSPEC: dict[str, Result] = {"passed": "passed", "failed": "failed", "pending": "skipped"}


def _outcome(names: dict[str, Result], status: str) -> Result:
    if status not in names:
        raise Unfit(f"the test report has the outcome {status[:40]!r}, which is none")
    return names[status]


# --- jest and vitest: jestjs.io/docs/cli#--json, vitest.dev/guide/reporters#json-reporter ---------------------------


class _JestTest(Lenient):
    fullName: str  # noqa: N815 (theirs)
    status: str
    failureMessages: tuple[str, ...] | None = None  # noqa: N815


class _JestFile(Lenient):
    name: str
    status: str = ""
    message: str = ""
    assertionResults: tuple[_JestTest, ...] = ()  # noqa: N815


class _Jest(Lenient):
    numTotalTests: int | None = None  # noqa: N815
    numFailedTests: int | None = None  # noqa: N815
    numPassedTests: int | None = None  # noqa: N815
    testResults: tuple[_JestFile, ...]  # noqa: N815


def jest(content: bytes, root: str) -> Report:
    """A file that could not be loaded is an error under its path alone."""
    said = _Jest.model_validate_json(content)
    collected = Collected(root)
    for file in said.testResults:
        for test in file.assertionResults:
            told = "\n".join(test.failureMessages or ())
            collected.add(
                collected.named(file.name, test.fullName), _outcome(_JEST, test.status), told or file.message
            )
    found = {
        "tests": collected.total,
        "failures": collected.counts["failed"],
        "passes": collected.counts["passed"],
    }
    claims = {"tests": said.numTotalTests, "failures": said.numFailedTests, "passes": said.numPassedTests}
    collected.check(claims, found)
    for file in said.testResults:
        if file.status == "failed" and all(test.status != "failed" for test in file.assertionResults):
            collected.add(collected.inside(file.name), "error", file.message)
    return collected.report()


# --- mocha: mochajs.org/#json -----------------------------------------------------------------------------------


class _MochaError(Lenient):
    message: str | None = None
    stack: str | None = None


class _MochaTest(Lenient):
    fullTitle: str  # noqa: N815 (theirs)
    file: str | None = None
    err: _MochaError = _MochaError()


class _MochaStats(Lenient):
    tests: int | None = None
    passes: int | None = None
    pending: int | None = None
    failures: int | None = None


class _Mocha(Lenient):
    stats: _MochaStats = _MochaStats()
    tests: tuple[_MochaTest, ...]
    passes: tuple[_MochaTest, ...]
    failures: tuple[_MochaTest, ...]
    pending: tuple[_MochaTest, ...] = ()


def mocha(content: bytes, root: str) -> Report:
    """A hook that fails is a failure by the hook's name."""
    said = _Mocha.model_validate_json(content)
    collected = Collected(root)
    outcomes: tuple[tuple[tuple[_MochaTest, ...], Result], ...] = (
        (said.passes, "passed"),
        (said.failures, "failed"),
        (said.pending, "skipped"),
    )
    for tests, result in outcomes:
        for test in tests:
            told = test.err.stack or test.err.message or ""
            collected.add(collected.named(test.file or "", test.fullTitle), result, told)
    found = {"tests": len(said.tests), "passes": len(said.passes), "failures": len(said.failures)}
    collected.check(said.stats.model_dump(), found | {"pending": len(said.pending)})
    return collected.report()


# --- rspec: the formatter `json` of rspec-core -------------------------------------------------------------------


class _RspecError(Lenient):
    message: str | None = None


class _Example(Lenient):
    full_description: str
    status: str
    file_path: str = ""
    exception: _RspecError | None = None


class _RspecSummary(Lenient):
    example_count: int | None = None
    failure_count: int | None = None
    errors_outside_of_examples_count: int = 0


class _Rspec(Lenient):
    examples: tuple[_Example, ...]
    summary: _RspecSummary = _RspecSummary()
    messages: tuple[str, ...] = ()


def rspec(content: bytes, root: str) -> Report:
    """A file that could not be loaded is an error under its path alone, when rspec names it."""
    said = _Rspec.model_validate_json(content)
    collected = Collected(root)
    for example in said.examples:
        collected.add(
            collected.named(example.file_path, example.full_description),
            _outcome(_RSPEC, example.status),
            example.exception.message or "" if example.exception else "",
        )
    claims = {"tests": said.summary.example_count, "failures": said.summary.failure_count}
    collected.check(claims, {"tests": collected.total, "failures": collected.counts["failed"]})
    for message in said.messages if said.summary.errors_outside_of_examples_count else ():
        _, found, file = message.partition("An error occurred while loading ")
        if found:
            collected.add(
                collected.inside(file.split("\n", 1)[0].partition(". - Did")[0].strip().rstrip(".")),
                "error",
                message,
            )
    return collected.report()


# --- go: `go doc test2json` ---------------------------------------------------------------------------------------


class _GoEvent(Lenient):
    Action: str
    Package: str = ""
    Test: str = ""
    Output: str = ""


def go(content: bytes, root: str) -> Report:
    """The stream of `go test -json`, amid whatever else was printed; a package that fails by itself is an error.

    A test with parts counts by its parts, unless it fails and none of them does.
    """
    results: dict[tuple[str, str], Result | None] = {}
    said: dict[tuple[str, str], list[str]] = {}
    output: list[str] = []
    for event in _go_events(content):
        test = event.Package, event.Test
        match event.Action:
            case "run":
                results.setdefault(test, None)
            case "pass" | "fail" | "skip" if event.Test or event.Action == "fail":
                ended: dict[str, Result] = {"pass": "passed", "fail": "failed", "skip": "skipped"}
                results[test] = ended[event.Action]
            case "output" | "build-output":
                output.append(event.Output)
                said.setdefault(test, []).append(event.Output)
    collected = Collected(root)
    parents = {above for test in results for above in _above(*test)}
    explained = {
        above for test, result in results.items() if result in ("failed", None) for above in _above(*test)
    }
    for (package, name), result in results.items():
        if (package, name) in explained or (result != "failed" and (package, name) in parents):
            continue
        message = "".join(said.get((package, name), ()))
        if name:
            # None: it began, and its program ended before it did.
            collected.add(collected.named(package, name), result or "failed", message)
        else:
            collected.add(package, "error", message)
    return collected.report("".join(output))


def _above(package: str, name: str) -> Iterator[tuple[str, str]]:
    """The tests of which this one is a part, and its package."""
    parts = name.split("/")
    if name:
        yield package, ""
        yield from ((package, "/".join(parts[:count])) for count in range(1, min(len(parts), 20)))


def _go_events(content: bytes) -> Iterator[_GoEvent]:
    for line in content.splitlines():
        if line.startswith(b'{"'):
            try:
                yield _GoEvent.model_validate_json(line)
                continue
            except ValueError:
                pass  # what a program printed that looks alike
        text = line.decode(errors="replace") + "\n"
        yield _GoEvent(Action="output", Output=text)
        words = text.split()
        if len(words) >= 3 and words[0] == "FAIL" and words[2] in ("[build", "[setup"):
            yield _GoEvent(Action="fail", Package=words[1][:MAX_ID])


# --- our own reporters (reporters/): one test a line -----------------------------------------------------------


class _Line(Lenient):
    file: str = ""
    name: str = ""
    result: Result
    message: str = ""


class _Total(Lenient):
    tests: int


def lines(content: bytes, root: str) -> Report:
    """What our own reporters write: a line for each test, and at the end how many there were."""
    collected = Collected(root)
    *tests, last = content.splitlines() or [b""]
    if not last.startswith(b'{"tests":'):
        raise Unfit("the test report ends before the tests did")
    for line in tests:
        test = _Line.model_validate_json(line)
        name = collected.named(test.file, test.name) if test.name else collected.inside(test.file)
        collected.add(name, test.result, test.message)
    collected.check({"tests": _Total.model_validate_json(last).tests}, {"tests": collected.total})
    return collected.report()
