"""An analyzer and a policy of another package, chosen by settings; they are the example of docs/tools.md."""

import re
from pathlib import Path

import pytest

from resolver.errors import SettingsError
from resolver.outfit import guarded
from resolver.security.risk import Rules
from resolver.settings.settings import Settings
from resolver.tools.tool import ActionTool
from runtime.actions import RunShell
from runtime.observations import Failed, Observation, Ran

DOCS = Path(__file__).parents[3] / "docs" / "tools.md"
ENTRIES = """
[patchwright.analyzers]
no-migrations = house:NoMigrations
wrong = house:OnlyHarmless
broken = house:Absent

[patchwright.policies]
only-harmless = house:OnlyHarmless
wrong = house:NoMigrations
"""


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package of the example, as pip would leave it."""
    (example,) = re.findall(r"```python\n(# house\.py\n.*?)```", DOCS.read_text(), re.DOTALL)
    (tmp_path / "house.py").write_text(example)
    facts = tmp_path / "house-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: house\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(ENTRIES)
    monkeypatch.syspath_prepend(str(tmp_path))


async def ran(command: str, **chosen: object) -> Observation:
    """What the shell answers behind these settings."""

    async def run(action: RunShell) -> Observation:
        return Ran(output="", exit_code=0, cwd="/", seconds=0.1)

    settings = Settings.model_validate({"data": Path("/data"), **chosen})
    (tool,) = guarded([ActionTool(RunShell, run)], settings, Rules("/workspace", "/tmp"))
    answer: Observation = await tool.answer(RunShell(command=command))  # type: ignore[assignment]
    return answer


async def test_an_analyzer_that_a_setting_names_rates_beside_the_rules() -> None:
    migrate = "python3 manage.py migrate"
    assert isinstance(await ran(migrate), Ran)
    refused = await ran(migrate, risk_analyzers="no-migrations")
    assert isinstance(refused, Failed) and "migrations are run by hand here" in refused.message
    pushed = await ran("git push", risk_analyzers="no-migrations")
    assert isinstance(pushed, Failed) and "sends the work elsewhere" in pushed.message


async def test_a_policy_that_a_setting_names_decides_in_place_of_ours() -> None:
    unreadable = "$(cat what) --now"
    assert isinstance(await ran(unreadable), Ran)
    assert isinstance(await ran(unreadable, risk_policy="only-harmless", refuse_risk="never"), Failed)
    assert isinstance(await ran("ls", risk_policy="only-harmless"), Ran)


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"risk_analyzers": "unheard-of"}, "there are: broken, no-migrations, wrong"),
        ({"risk_policy": "unheard-of"}, "is no entry point of patchwright.policies"),
        ({"risk_analyzers": "broken"}, "broken of patchwright.analyzers cannot be loaded"),
        ({"risk_analyzers": "wrong"}, "is no analyzer"),
        ({"risk_policy": "wrong"}, "is no policy"),
    ],
)
async def test_what_is_none_is_an_error_of_the_operator(chosen: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        await ran("ls", **chosen)
