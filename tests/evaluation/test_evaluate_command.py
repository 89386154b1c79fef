"""`patchwright evaluate`, from a data set to a report, in real sandboxes."""

import asyncio
import contextlib
import json
import sys
from pathlib import Path
from typing import Literal

import pytest

from patchwright.demo.recorded_model import RecordedModel, RecordedTurn
from patchwright.resolver.domain import RunId
from patchwright.resolver.errors import UsageError
from patchwright.resolver.events import RunStarted
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.tool_actions.control_actions import Finish
from patchwright.runtime.actions import ReplaceText, RunShell
from tests.evaluation.evaluation_scenario import ADD, HALF, HINT, EvaluationScenario


@pytest.mark.parametrize(
    "sandbox", ["local", pytest.param("docker", marks=[pytest.mark.docker, pytest.mark.slow])]
)
async def test_the_reference_fix_resolves_an_instance_and_no_change_does_not(
    sandbox: Literal["local", "docker"],
    evaluation: EvaluationScenario,
    capsys: pytest.CaptureFixture[str],
) -> None:
    evaluation.write_rows(evaluation.make_row(ADD))
    code = await evaluation.evaluate("--model", "gold", "--model", "empty", "--json", sandbox=sandbox)
    printed = json.loads(capsys.readouterr().out)
    assert code == 0
    assert (printed["instances"], printed["hints"], printed["attempts_per_instance"]) == (1, False, 1)
    assert printed["temperature"] == "0, or the model's default if it accepts no temperature"
    assert {model["model"]: model["resolve_rate"] for model in printed["models"]} == {
        "gold": 1.0,
        "empty": 0.0,
    }
    controls, attempts = evaluation.read_results()
    assert (controls[ADD.id].gold_resolved, controls[ADD.id].empty_resolved) == (True, False)
    gold = attempts[f"{ADD.id}-gold-1"]
    assert (gold.verdict, gold.failure) == ("fixed", None)
    assert gold.stages == (
        "reproduced", "localized", "patched", "own_tests_pass", "pull_request", "hidden_tests_pass",
    )  # fmt: skip
    assert attempts[f"{ADD.id}-empty-1"].failure == "gave_up"
    prediction = json.loads((evaluation.results.path / "predictions-gold.jsonl").read_text())
    assert (prediction["instance_id"], prediction["model_name_or_path"]) == (ADD.id, "gold")
    assert "+    return a + b" in prediction["model_patch"]
    page = (evaluation.results.path / "report.html").read_text()
    assert f'href="runs/{ADD.id}-gold-1/view.html"' in page
    assert (evaluation.results.path / f"runs/{ADD.id}-gold-1/view.html").exists()


async def test_the_model_sees_neither_hints_nor_hidden_tests(evaluation: EvaluationScenario) -> None:
    evaluation.write_rows(evaluation.make_row(ADD))
    await evaluation.evaluate("--model", "empty")
    log = (evaluation.results.path / f"runs/{ADD.id}-empty-1/events.jsonl").read_text()
    assert "add() subtracts" in log
    assert HINT not in log
    assert "test_hidden" not in log


@pytest.mark.slow
async def test_an_instance_whose_reference_fix_fails_is_left_out(
    evaluation: EvaluationScenario, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = evaluation.make_row(ADD, FAIL_TO_PASS=json.dumps(["tests/test_hidden_1.py::test_missing"]))
    evaluation.write_rows(wrong)
    assert await evaluation.evaluate("--model", "empty") == 3
    controls, attempts = evaluation.read_results()
    assert attempts == {}  # No model is paid for it.
    assert "fail with the reference fix" in controls[ADD.id].problem
    assert "1 left out as broken" in capsys.readouterr().out


@pytest.mark.slow
async def test_hidden_test_data_is_no_test_file(evaluation: EvaluationScenario) -> None:
    text = (
        "import pathlib, calc\n\n\ndef test_all():\n    for line in pathlib.Path('tests/cases.txt').open():\n"
        "        assert calc.add(*map(int, line.split()[:2])) == int(line.split()[2])\n"
    )
    evaluation.base = evaluation.repository.commit(
        {"tests/test_cases.py": text, "tests/cases.txt": "1 0 1\n"}
    )
    tests = evaluation.diff({"tests/cases.txt": "1 0 1\n2 3 5\n"})
    evaluation.write_rows(evaluation.make_row(ADD, test_patch=tests, FAIL_TO_PASS="[]"))
    await evaluation.evaluate("--model", "empty")
    control = evaluation.read_results()[0][ADD.id]
    assert (control.problem, control.fail_to_pass) == ("", ("tests/test_cases.py::test_all",))


@pytest.mark.slow
async def test_a_finished_attempt_is_not_made_again(evaluation: EvaluationScenario) -> None:
    evaluation.write_rows(evaluation.make_row(ADD), evaluation.make_row(HALF))
    await evaluation.evaluate("--model", "empty", "--limit", "1")
    log = evaluation.results.path / f"runs/{ADD.id}-empty-1/events.jsonl"
    first = log.read_bytes()
    await evaluation.evaluate("--model", "empty", "--workers", "2")
    assert log.read_bytes() == first
    assert set(evaluation.read_results()[1]) == {f"{ADD.id}-empty-1", f"{HALF.id}-empty-1"}


@pytest.mark.slow
async def test_a_run_that_ended_before_its_result_was_stored_is_not_paid_again(
    evaluation: EvaluationScenario,
) -> None:
    evaluation.write_rows(evaluation.make_row(ADD))
    await evaluation.evaluate("--model", "gold")
    run = f"{ADD.id}-gold-1"
    stored = evaluation.results.path / f"attempts/{run}.json"
    expected = evaluation.read_results()[1][run]
    stored.unlink()  # as if the process had been killed just before
    log = evaluation.results.path / f"runs/{run}/events.jsonl"
    before = log.read_bytes()
    await evaluation.evaluate("--model", "gold")
    assert log.read_bytes() == before
    again = evaluation.read_results()[1][run]
    assert (again.score, again.verdict, again.usage) == (expected.score, expected.verdict, expected.usage)


@pytest.mark.slow
async def test_results_under_other_rules_are_not_mixed(evaluation: EvaluationScenario) -> None:
    evaluation.write_rows(evaluation.make_row(ADD))
    await evaluation.evaluate("--model", "empty")
    with pytest.raises(UsageError, match="another max_steps"):
        await evaluation.evaluate("--model", "empty", "--max-steps", "7")


@pytest.mark.slow
async def test_a_low_resolve_rate_gives_an_exit_code(evaluation: EvaluationScenario) -> None:
    evaluation.write_rows(evaluation.make_row(ADD))
    assert await evaluation.evaluate("--model", "empty", "--min-resolved", "50") == 3


@pytest.mark.slow
async def test_a_report_leaves_out_instances_that_a_model_may_have_seen(
    evaluation: EvaluationScenario,
) -> None:
    evaluation.write_rows(
        evaluation.make_row(ADD), evaluation.make_row(HALF, created_at="2026-03-01T00:00:00")
    )
    await evaluation.evaluate("--model", "gold")
    assert evaluation.read_report()["usable"] == 2
    _, attempts = evaluation.read_results()
    await evaluation.evaluate("--model", "gold", "--since", "2026-03-01")
    assert evaluation.read_report()["usable"] == 1
    assert evaluation.read_results()[1] == attempts
    await evaluation.evaluate("--model", "gold")
    assert evaluation.read_report()["usable"] == 2
    with pytest.raises(UsageError, match=r"^--since: March is not a day such as 2026-01-31$"):
        await evaluation.evaluate("--since", "March")


@pytest.mark.slow
async def test_two_evaluations_are_compared(evaluation: EvaluationScenario, tmp_path: Path) -> None:
    evaluation.write_rows(evaluation.make_row(ADD))
    await evaluation.evaluate("--model", "empty")
    evaluation.results.path.rename(tmp_path / "last-week")
    await evaluation.evaluate("--model", "gold", "--compare-with", str(tmp_path / "last-week"))
    (comparison,) = evaluation.read_report()["comparisons"]
    assert (comparison["first"], comparison["second"]) == ("empty (last-week)", "gold")
    assert comparison["only_second"] == [ADD.id]


@pytest.mark.slow
async def test_a_killed_evaluation_continues_and_pays_each_step_once(
    evaluation: EvaluationScenario, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluation.write_rows(evaluation.make_row(ADD))
    fix = ReplaceText(path="calc.py", old=ADD.old, new=ADD.new)
    turns = (RecordedTurn("Look.", RunShell(command="cat calc.py")), RecordedTurn("Fix it.", fix))
    turns += (RecordedTurn("Done.", Finish(cause="A typo.", change="It adds.", testing="None.")),) * 6
    killed: list[asyncio.Task[int]] = []

    def kill(turn: int, _: object) -> None:
        if turn == 1 and killed:
            killed.pop().cancel()

    async with RecordedModel(turns, on_request=kill) as model:
        options = ("--model", "openai/scripted", "--base-url", model.base_url)
        evaluation.monkeypatch.setenv("PATCHWRIGHT_MODEL_API_KEY", "sk-scripted-model")
        killed.append(asyncio.create_task(evaluation.evaluate(*options)))
        with pytest.raises(asyncio.CancelledError):
            await killed[0]
        assert evaluation.read_results()[1] == {}
        assert "run the same command again" in capsys.readouterr().err
        assert evaluation.read_report()["models"][0]["missing"] == 1
        assert await evaluation.evaluate(*options) == 0
        request_count = len(model.requests)
    (result,) = evaluation.read_results()[1].values()
    assert result.resolved
    # Only the request that was interrupted is sent again.
    assert request_count == result.usage.steps + 1


@pytest.mark.slow
async def test_an_evaluation_that_is_killed_three_times_makes_each_attempt_once(
    evaluation: EvaluationScenario,
) -> None:
    rows = [evaluation.make_row(ADD, instance_id=f"acme__calc-{number}") for number in range(6)]
    evaluation.write_rows(*rows)
    command = [sys.executable, "-m", "patchwright", "evaluate", "issues.jsonl", "--out", "results"]
    command += ["--repositories", "clones", "--sandbox", "local", "--model", "empty", "--workers", "2"]
    for seconds in (4, 6, 8):
        process = await asyncio.create_subprocess_exec(*command, cwd=evaluation.directory)
        await asyncio.sleep(seconds)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    assert await evaluation.evaluate("--model", "empty", "--workers", "2") == 0
    _, attempts = evaluation.read_results()
    assert len(attempts) == 6
    for run, result in attempts.items():
        trajectory = FileLogStore(evaluation.results.runs).read(RunId(run))
        assert len(trajectory.replies()) == result.usage.steps
        assert sum(isinstance(event, RunStarted) for event in trajectory) == 1
