"""An analyzer and a policy from another package, chosen by settings; they are the example in docs/tools.md."""

import re
from pathlib import Path

import pytest

from patchwright.resolver.errors import SettingsError
from patchwright.resolver.pipeline.call_decisions import apply_policy
from patchwright.resolver.security.risk import RuleAnalyzer
from patchwright.resolver.settings.settings import Settings
from patchwright.resolver.tools.policy_tools import RISK_FIELD
from patchwright.resolver.tools.tool import ActionTool
from patchwright.runtime.actions import RunShell
from patchwright.runtime.observations import ActionFailure, Observation, ShellResult

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
    """Installs the example package as pip would."""
    (example,) = re.findall(r"```python\n(# house\.py\n.*?)```", DOCS.read_text(), re.DOTALL)
    (tmp_path / "house.py").write_text(example)
    facts = tmp_path / "house-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: house\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(ENTRIES)
    monkeypatch.syspath_prepend(str(tmp_path))


async def run_shell(command: str, rating: str | None = None, **chosen: object) -> Observation:
    """Returns the shell's result with these settings. `rating` is what the model says of the risk."""

    async def run(action: RunShell) -> Observation:
        return ShellResult(output="", exit_code=0, cwd="/", seconds=0.1)

    settings = Settings.model_validate({"data": Path("/data"), **chosen})
    (tool,) = apply_policy([ActionTool(RunShell, run)], settings, RuleAnalyzer("/workspace", "/tmp"))
    answer: Observation = await tool.execute(
        tool.parse({"command": command} | ({RISK_FIELD: rating} if rating else {}))
    )  # type: ignore[assignment]
    return answer


async def test_a_configured_analyzer_rates_in_addition_to_the_rules() -> None:
    migrate = "python3 manage.py migrate"
    assert isinstance(await run_shell(migrate), ShellResult)
    refused = await run_shell(migrate, risk_analyzers="no-migrations")
    assert isinstance(refused, ActionFailure) and "migrations are run by hand here" in refused.message
    pushed = await run_shell("git push", risk_analyzers="no-migrations")
    assert isinstance(pushed, ActionFailure) and "uploads the work" in pushed.message


async def test_the_model_rates_its_own_calls_if_the_analyzers_name_it() -> None:
    refused = await run_shell("ls", "high", risk_analyzers="no-migrations model")
    assert isinstance(refused, ActionFailure) and "the agent itself gives this rating" in refused.message
    assert isinstance(await run_shell("ls", "low", risk_analyzers="model"), ShellResult)


async def test_a_configured_policy_replaces_the_default() -> None:
    unreadable = "$(cat what) --now"
    assert isinstance(await run_shell(unreadable), ShellResult)
    assert isinstance(
        await run_shell(unreadable, risk_policy="only-harmless", risk_threshold="never"), ActionFailure
    )
    assert isinstance(await run_shell("ls", risk_policy="only-harmless"), ShellResult)


async def test_a_configured_policy_decides_on_the_ratings_of_a_configured_analyzer() -> None:
    migrate = "python3 manage.py migrate"
    assert isinstance(await run_shell(migrate, risk_policy="only-harmless"), ShellResult)
    refused = await run_shell(migrate, risk_policy="only-harmless", risk_analyzers="no-migrations")
    assert isinstance(refused, ActionFailure) and "migrations are run by hand here" in refused.message


@pytest.mark.parametrize(
    ("chosen", "text"),
    [
        ({"risk_analyzers": "unheard-of"}, "available: broken, no-migrations, wrong"),
        ({"risk_policy": "unheard-of"}, "is not an entry point of patchwright.policies"),
        ({"risk_analyzers": "broken"}, "broken of patchwright.analyzers cannot be loaded"),
        ({"risk_analyzers": "wrong"}, "is not a RiskAnalyzer"),
        ({"risk_policy": "wrong"}, "is not a RiskPolicy"),
    ],
)
async def test_an_invalid_plugin_is_a_settings_error(chosen: dict[str, str], text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        await run_shell("ls", **chosen)
