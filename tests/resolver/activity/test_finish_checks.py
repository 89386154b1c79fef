"""The checks of a run that wants to finish, on logs and diffs."""

import time

import pytest

from patchwright.resolver.actions import Action, AnyObservation
from patchwright.resolver.activity.finish_checks import (
    describe_open_points,
    find_missing_steps,
    has_reproduced,
    has_run_tests,
    last_finish,
    parse_requirements,
    was_sent_back,
)
from patchwright.resolver.domain import Issue, Job, JobId, Patch, Repo, User, Verdict
from patchwright.resolver.events import (
    Checkpoint,
    Event,
    Message,
    ModelReply,
    ReplyUsage,
    RunStarted,
    ToolCall,
    ToolResult,
    Trajectory,
    VerificationCompleted,
)
from patchwright.resolver.run_results import TestRun
from patchwright.resolver.tool_actions.control_actions import Finish, Plan
from patchwright.runtime.actions import ReplaceText, RunPython, RunShell
from patchwright.runtime.observations import (
    Acknowledgment,
    ActionFailure,
    CellResult,
    EditResult,
    ShellResult,
)
from patchwright.runtime.tool_action import PlanItem
from tests.resolver.trajectories import run

FIX_DIFF = b"diff --git a/calc.py b/calc.py\n--- a/calc.py\n+++ b/calc.py\n@@ -1 +1 @@\n-a - b\n+a + b\n"
EDIT = Checkpoint(patch=Patch(base_sha="b" * 40, diff=FIX_DIFF))
NOT_REPRODUCED = (
    "Nothing shows the failure: no command failed before the last edit, "
    "and no command had different output before and after the edits."
)
NOT_TESTED = "The repository's tests were not run after the last edit."


def shell(command: str, code: int | None = 0) -> tuple[Action, AnyObservation]:
    return RunShell(command=command), ShellResult(output="", exit_code=code, cwd="/w", seconds=0.1)


def started(body: str) -> RunStarted:
    user = User(login="r", id=1)
    issue = Issue(number=7, title="t", body=body, author=user, trusted=False, open=True, url="u")
    job = Job(id=JobId("j"), repo=Repo(owner="o", name="r"), number=7, requester=None)
    return RunStarted(
        job=job, thread=issue, base_sha="b" * 40, base_branch="main", source="s", model="m", sandbox="local"
    )


def test_a_run_that_reproduced_fixed_and_tested_misses_no_step() -> None:
    done = run(shell("pytest -k sign", 1), EDIT, shell("cd /w && python -m pytest -q"))
    assert find_missing_steps(done, "python3 -m pytest") == ()


def test_each_missing_step_is_one_sentence() -> None:
    assert find_missing_steps(run(EDIT), None) == (NOT_REPRODUCED, NOT_TESTED)


def test_tests_that_cannot_run_are_not_required() -> None:
    assert find_missing_steps(run(EDIT), "go test ./...", can_run_tests=False) == (NOT_REPRODUCED,)


def test_a_run_without_a_change_misses_no_step() -> None:
    assert find_missing_steps(run(shell("ls")), None) == ()
    assert find_missing_steps(run(Checkpoint(patch=Patch(base_sha="b" * 40, diff=b""))), None) == ()


def test_a_finish_call_beside_a_failed_call_is_rejected() -> None:
    edit = ReplaceText(path="calc.py", old="a - b", new="a + b")
    calls = (
        ToolCall(id="a", action=edit),
        ToolCall(id="b", action=Finish(cause="c", change="c", testing="c")),
    )
    reply = ModelReply(thought="", calls=calls, usage=ReplyUsage(model="m"))
    failed = ToolResult(
        call_id="a", observation=ActionFailure(reason="not_found", message="old is not in calc.py")
    )
    done = ToolResult(call_id="a", observation=EditResult(path="calc.py", diff=""))
    assert find_missing_steps(run(reply, failed), None) == (
        "`finish` was called in the same reply as `replace_text`, which failed.",
    )
    assert find_missing_steps(run(reply, done), None) == ()


@pytest.mark.parametrize(
    ("command", "code", "shows"),
    [
        ("python repro.py", 1, True),
        ("PYTHONPATH=/w python /tmp/repro.py", 1, True),
        ("cd sub && node repro.js", 1, True),
        ("python repro.py", 0, False),
        ("grep -rn missing src", 1, False),
        ("git diff --exit-code | cat", 1, False),
        ("no-such-program", 127, False),
    ],
)
def test_only_a_failed_program_is_a_reproduction(command: str, code: int, shows: bool) -> None:
    assert has_reproduced(run(shell(command, code), EDIT)) is shows


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("python -m pytest -q 2>&1 | tail -n 3", "FAILED test_calc.py::test_add\n1 failed, 3 passed in 0.1s"),
        ("npx jest | cat", "Tests:       1 failed, 4 passed, 5 total"),
        ("npm test || true", "  2 passing (8ms)\n  1 failing"),
        ("go test ./... | tail", "--- FAIL: TestAdd (0.00s)\nFAIL"),
        ("python -m unittest; true", "FAILED (failures=1)"),
        ("cargo test; echo", "test result: FAILED. 1 passed; 1 failed"),
        ("node --test; true", "not ok 1 - adds"),
        ("node --test | tail -n 8", "\u2139 pass 2\n\u2139 fail 1"),
        ("node --test | tail -n 8", "# pass 2\n# fail 1"),
    ],
)
def test_a_failing_test_behind_a_pipe_is_a_reproduction(command: str, output: str) -> None:
    def shell_step(text: str) -> tuple[Action, AnyObservation]:
        return RunShell(command=command), ShellResult(output=text, exit_code=0, cwd="/w", seconds=0.1)

    assert has_reproduced(run(shell_step(output), EDIT))
    assert not has_reproduced(run(shell_step("3 passed, 0 failed in 0.1s"), EDIT))


@pytest.mark.parametrize(
    "output",
    [
        "Traceback (most recent call last):\n  File ...",
        "===== ( as )\nIndexError: list index out of range\n",
        "sqlparse.exceptions.SQLParseError: too deep",
        "case , end -> ValueError('None is not in list')",
        "Uncaught TypeError: x is not a function",
        'Exception in thread "main" java.lang.IllegalStateException',
        "thread 'main' panicked at src/main.rs:3:5:",
    ],
)
def test_an_exception_that_a_script_prints_is_a_reproduction(output: str) -> None:
    def shell_step(command: str, text: str) -> tuple[Action, AnyObservation]:
        return RunShell(command=command), ShellResult(output=text, exit_code=0, cwd="/w", seconds=0.1)

    made = "cat > /tmp/r.py <<'X'\nimport calc\nX\n"
    assert has_reproduced(run(shell_step(f"{made}PYTHONPATH=/w python3 /tmp/r.py", output), EDIT))
    assert not has_reproduced(run(shell_step("cat error.log", output), EDIT))
    assert not has_reproduced(run(shell_step(made, output), EDIT))
    assert not has_reproduced(run(shell_step("python3 /tmp/r.py", "raises ValueError where it should"), EDIT))


def test_huge_output_is_checked_quickly() -> None:
    flood = "A" * 500_000 + "\n" + "a." * 250_000 + "\n" * 100_000 + "<<X" * 10_000
    start = time.process_time()
    result = RunShell(command="python3 r.py"), ShellResult(output=flood, exit_code=0, cwd="/w", seconds=0.1)
    assert not has_reproduced(run(result, EDIT, result))
    assert time.process_time() - start < 5


def test_a_script_counts_as_the_same_command_in_a_longer_command_line() -> None:
    def shell_step(command: str, output: str) -> tuple[Action, AnyObservation]:
        return RunShell(command=command), ShellResult(output=output, exit_code=0, cwd="/w", seconds=0.1)

    written = shell_step("cat > /tmp/r.py <<'X'\nfrom calc import add\nX\npython3 /tmp/r.py", "-1")
    assert has_reproduced(run(written, EDIT, shell_step("python3 /tmp/r.py | head -2; git status", "3")))
    assert not has_reproduced(
        run(written, EDIT, shell_step("cat > /tmp/s.py <<'X'\nfrom calc import add\nX", ""))
    )
    typed = shell_step("python3 - <<'X'\nfrom calc import add\nX", "-1")
    assert not has_reproduced(run(typed, EDIT, shell_step("python3 - <<'X'\nprint(3)\nX", "3")))


def test_the_same_command_with_another_result_after_the_edit_is_a_reproduction() -> None:
    def shell_step(command: str, output: str) -> tuple[Action, AnyObservation]:
        return RunShell(command=command), ShellResult(output=output, exit_code=0, cwd="/w", seconds=0.1)

    shown = "python3 -c 'from calc import add; print(add(1, 2))'"
    assert has_reproduced(
        run(shell_step(shown, "-1"), EDIT, shell_step(f"pytest -q; {shown}", "1 passed\n3"))
    )
    assert not has_reproduced(run(shell_step(shown, "-1"), EDIT, shell_step(shown, "-1")))
    assert not has_reproduced(
        run(shell_step("cat calc.py", "a - b"), EDIT, shell_step("cat calc.py", "a + b"))
    )
    assert not has_reproduced(run(EDIT, shell_step(shown, "3"), shell_step(shown, "3")))


def test_a_cell_that_raises_is_a_reproduction_only_before_the_edit() -> None:
    raised = RunPython(code="calc.add(1, 2)"), CellResult(output="AssertionError", ok=False, seconds=0.1)
    assert has_reproduced(run(raised, EDIT))
    assert not has_reproduced(run(EDIT, shell("pytest", 1)))


@pytest.mark.parametrize(
    "command",
    [
        "pytest",
        "python -m pytest tests",
        "npm test",
        "npm run test -- x",
        "go test ./...",
        "make check",
        "cargo test",
        "bundle exec rspec",
        "node --test",
        "./gradlew test",
        "mvn -q verify",
        "sh ./own-suite.sh",
    ],
)
def test_the_usual_runners_and_the_repositorys_own_command_count_as_tests(command: str) -> None:
    assert has_run_tests(run(EDIT, shell(command)), "sh ./own-suite.sh")
    assert not has_run_tests(run(shell(command), EDIT), "sh ./own-suite.sh")


def test_reading_a_test_is_not_running_it() -> None:
    assert not has_run_tests(run(EDIT, shell("cat tests/test_calc.py")), "python3 -m unittest")


def step(number: int, action: Action, observation: AnyObservation, *files: str) -> list[Event]:
    """The events of one call after which the work tree has changes in these files, each named `path=text`."""
    parts = [
        f"diff --git a/{name} b/{name}\n+++ b/{name}\n+{text}\n"
        for name, _, text in (file.partition("=") for file in files)
    ]
    call = ToolCall(id=f"s{number}", action=action)
    return [
        ModelReply(thought="", calls=(call,), usage=ReplyUsage(model="m")),
        Checkpoint(patch=Patch(base_sha="b" * 40, diff="".join(parts).encode())),
        ToolResult(call_id=call.id, observation=observation),
    ]


def log_of(*steps: list[Event]) -> Trajectory:
    return run(*(event for events in steps for event in events))


TESTED = step(2, *shell("python -m pytest -q"), "calc.py=1", "out.xml=left")


def edit(number: int, *files: str) -> list[Event]:
    action = ReplaceText(path="calc.py", old="a", new="b")
    return step(number, action, EditResult(path="calc.py", diff=""), *files)


@pytest.mark.parametrize(
    "later",
    [
        step(3, *shell("rm out.xml"), "calc.py=1"),
        step(3, *shell("python demo.py && rm demo.txt out.xml"), "calc.py=1"),
        step(3, *shell("ls"), "calc.py=1", "out.xml=left"),
    ],
)
def test_deleting_what_a_test_run_left_behind_is_no_edit(later: list[Event]) -> None:
    assert has_run_tests(log_of(edit(1, "calc.py=1"), TESTED, later), None)


def test_deleting_what_an_earlier_test_run_left_behind_is_no_edit() -> None:
    first = step(0, *shell("pytest", 1), "out.xml=left")
    edited = edit(1, "calc.py=1", "out.xml=left")
    assert has_run_tests(log_of(first, edited, TESTED, step(3, *shell("rm out.xml"), "calc.py=1")), None)


def test_an_edit_that_is_taken_back_needs_no_other_test_run() -> None:
    edited, undone = edit(3, "calc.py=2", "out.xml=left"), edit(4, "calc.py=1", "out.xml=left")
    assert not has_run_tests(log_of(edit(1, "calc.py=1"), TESTED, edited), None)
    assert has_run_tests(log_of(edit(1, "calc.py=1"), TESTED, edited, undone), None)


def test_a_refusal_names_the_edit_and_the_test_run_that_were_compared() -> None:
    deleted = step(4, *shell("rm out.xml"), "calc.py=2")
    late = log_of(edit(1, "calc.py=1"), TESTED, edit(3, "calc.py=2", "out.xml=left"), deleted)
    assert find_missing_steps(late, None)[-1] == (
        "The repository's tests were not run after the last edit: "
        "`python -m pytest -q` ran before `replace_text calc.py`."
    )
    assert find_missing_steps(log_of(edit(1, "calc.py=1")), None)[-1] == (
        "The repository's tests were not run after the last edit (`replace_text calc.py`)."
    )


def test_a_failure_that_the_tests_show_need_not_be_reproduced() -> None:
    points = (NOT_REPRODUCED, "Not done: the docs.")
    for kind in ("fixed", "conditional"):
        assert describe_open_points(points, Verdict(kind=kind)) == points[1:]
    assert describe_open_points(points, Verdict(kind="unproven")) == points


def test_people_read_that_patchwright_ran_the_tests_that_the_agent_did_not_run() -> None:
    tests = TestRun(command="pytest", results={"t": "passed"}, exit_code=0, seconds=1, output="")
    missing = find_missing_steps(log_of(edit(1, "calc.py=1")), None)[-1:]
    assert "`replace_text calc.py`" in missing[0]
    assert describe_open_points(missing, Verdict(kind="fixed", before=tests, after=tests)) == (
        "The agent did not run the repository's tests after its last edit, but Patchwright ran them.",
    )
    assert describe_open_points(missing, Verdict(kind="untested")) == (
        "The agent did not run the repository's tests after its last edit.",
    )


def test_open_points_of_the_last_plan_are_named() -> None:
    def plan(*states: str) -> tuple[Action, AnyObservation]:
        items = tuple(PlanItem(text=f"part {n}", status=state) for n, state in enumerate(states))  # type: ignore[arg-type]
        return Plan(items=items), ShellResult(output="", exit_code=0, cwd="/", seconds=0)

    before = (shell("pytest", 1), EDIT, shell("pytest"))
    assert find_missing_steps(run(*before, plan("done", "open", "dropped")), None) == (
        'Not marked as done by the agent: "part 1".',
    )
    assert find_missing_steps(run(*before, plan("open", "open"), plan("done", "dropped")), None) == ()


def test_an_issue_with_two_points_requires_a_plan() -> None:
    body = "It fails.\n\nAcceptance:\n- add takes floats\n- sub takes floats\n\nVersions:\n- 1.2\n- 1.3\n"
    trajectory = run(started(body), shell("pytest", 1), EDIT, shell("pytest"))
    assert find_missing_steps(trajectory, None) == (
        'Not marked as done by the agent: "add takes floats"; "sub takes floats".',
    )


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("- [ ] a\n- [x] I searched\n* [ ] b", ("a", "b")),
        ("1. open it\n2. it crashes", ()),
        ("## Steps to reproduce\n1. x\n## Expected\n1. y\n2. z", ("y", "z")),
        ("The requirements are:\n\n- one\n- two\n\nThanks!\n- not this", ("one", "two")),
    ],
)
def test_requirements_are_open_task_boxes_and_listed_requirements(
    body: str, expected: tuple[str, ...]
) -> None:
    assert parse_requirements(started(body).thread) == expected


def test_a_finish_call_is_rejected_once_until_a_person_comments() -> None:
    finish: Action = Finish(cause="a", change="b", testing="c")
    refused = ActionFailure(reason="refused", message="not yet")
    assert not was_sent_back(run(shell("ls")))
    assert was_sent_back(run((finish, refused), shell("ls")))
    assert not was_sent_back(run((finish, refused), Message(text="Do more.", source="comment")))


def test_a_finish_call_beside_a_failed_call_does_not_use_up_the_rejection() -> None:
    finish: Action = Finish(cause="a", change="b", testing="c")
    failed, refused = (ActionFailure(reason=reason, message="no") for reason in ("not_found", "refused"))
    calls = ToolCall(id="a", action=RunShell(command="ls")), ToolCall(id="b", action=finish)
    reply = ModelReply(thought="", calls=calls, usage=ReplyUsage(model="m"))
    results = (ToolResult(call_id=id, observation=result) for id, result in (("a", failed), ("b", refused)))
    beside = run(reply, *results)
    assert not was_sent_back(beside)
    assert was_sent_back(run(*beside, (finish, refused)))


def test_a_continued_run_is_summarized_by_its_own_finish_call() -> None:
    def finish(text: str) -> tuple[Action, AnyObservation]:
        return Finish(cause=text, change="b", testing="c"), Acknowledgment(text="Accepted.")

    untested = VerificationCompleted(verdict=Verdict(kind="untested"))
    first = run(finish("first"), untested)
    both = run(
        finish("first"), untested, Message(text="Go on.", source="comment"), finish("second"), untested
    )
    assert [getattr(last_finish(each), "cause", None) for each in (first, both)] == ["first", "second"]
