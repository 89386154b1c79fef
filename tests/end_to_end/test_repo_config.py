"""A repository with configuration mistakes still gets its run, and one comment about the mistakes."""

from collections.abc import Callable

import pytest

from patchwright.resolver.domain import Published
from tests.end_to_end.conftest import CODE, FIX_TURNS, TESTS, Scenario

FILE = ".github/patchwright.toml"


def a_tree(config: str | bytes) -> dict[str, str | bytes]:
    return {"calc.py": CODE, "tests/test_calc.py": TESTS, FILE: config}


def complaints(scenario: Scenario) -> list[str]:
    comments = scenario.repo.comments(scenario.issue.number)
    return [
        one.body.partition("\n")[2].strip()
        for one in comments
        if one.body.startswith("<!-- patchwright:configuration -->")
    ]


@pytest.mark.slow
async def test_an_invalid_setting_is_reported_once_with_its_line_and_the_rest_applies(
    make_scenario: Callable[..., Scenario],
) -> None:
    config = (
        '# how we work\nbranch = "fix-{number}"\ntest_timout = 60\n'
        'test_timeout = "long"\n\n[[tests]]\ncomand = "@maintainer"\n'
    )
    scenario = make_scenario(files=a_tree(config))
    await scenario.script_model(*FIX_TURNS, *FIX_TURNS)
    assert isinstance(await scenario.resolve(), Published)
    assert scenario.pull.head_ref == "patchwright/fix-1"
    again = scenario.job().model_copy(update={"id": "a-second-trigger"})
    await scenario.resolve(again)
    (notice,) = complaints(scenario)
    assert notice == (
        "`.github/patchwright.toml` has errors. I ignore these entries and apply the rest:\n\n"
        "- line 3, `test_timout`: there is no such setting, did you mean `test_timeout`?\n"
        "- line 4, `test_timeout`: it should be a valid integer.\n"
        "- line 6, `tests.command`: it is missing.\n"
        "- line 7, `tests.comand`: there is no such setting, did you mean `command`?"
    )


@pytest.mark.slow
async def test_an_unreadable_file_is_reported_and_the_defaults_apply(
    make_scenario: Callable[..., Scenario],
) -> None:
    scenario = make_scenario(files=a_tree("test_command = \n"))
    await scenario.script_model(*FIX_TURNS)
    assert isinstance(await scenario.resolve(), Published)
    assert complaints(scenario) == [
        "I cannot read `.github/patchwright.toml` (line 1): the file is not valid TOML: Invalid value. I "
        "ignore the file."
    ]


@pytest.mark.slow
async def test_on_the_command_line_it_is_rejected_with_its_line(
    make_scenario: Callable[..., Scenario],
) -> None:
    scenario = make_scenario(files=a_tree('test_comand = "x"\n'))
    await scenario.script_model()
    path = scenario.data / "here"
    scenario.repo.bare.git("clone", "--quiet", str(scenario.repo.bare.path), str(path))
    (scenario.data / "issue.md").write_text("add() subtracts")
    code, _, error = await scenario.command(
        "resolve", "--repo", str(path), "--issue", str(scenario.data / "issue.md")
    )
    assert (code, error.count("Traceback")) == (2, 0)
    problem = "test_comand (line 1): there is no such setting, did you mean test_command?"
    assert f".github/patchwright.toml in the commit is invalid: {problem}" in error
