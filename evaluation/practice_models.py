"""Models without a key or an account. They test the evaluation itself, through the same API as a real model.

`gold` applies the reference fix with its tests, so it must resolve every instance. `empty` changes nothing, so it
must resolve none.
"""

import secrets as random_tokens
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal

from pydantic import SecretStr

from patchwright.demo.recorded_model import RecordedModel, RecordedTurn
from patchwright.evaluation.instances import Instance
from patchwright.resolver.settings.model_settings import ModelSettings, Price
from patchwright.resolver.settings.settings import Settings
from patchwright.resolver.tool_actions.control_actions import Finish
from patchwright.runtime.actions import RunShell

PracticeKind = Literal["gold", "empty"]
PRACTICE_KINDS: tuple[PracticeKind, ...] = ("gold", "empty")
_RUN_TESTS = RunShell(command="python3 -m pytest -q 2>&1 | tail -n 3")
_DONE = Finish(cause="See the change.", change="As in the reference fix.", testing="The hidden tests.")
_NOTHING = Finish(cause="Not found.", change="Nothing.", testing="Not tested.")
_MAX_FINISHES = 8  # The agent may reject `finish`, or send the run back.


class PracticeModel(RecordedModel):
    """Serves the turns of every instance. The title of the issue in the prompt selects the instance."""

    def __init__(self, kind: PracticeKind, instances: Sequence[Instance]) -> None:
        super().__init__(())
        self._by_problem = {
            instance.issue.title: _build_turns(kind, instance)
            for instance in sorted(instances, key=lambda instance: -len(instance.issue.title))
        }

    def select_turns(self, messages: Sequence[Mapping[str, Any]]) -> Sequence[RecordedTurn]:
        prompt = str([message.get("content") for message in messages if message["role"] == "user"])
        return next((turns for title, turns in self._by_problem.items() if str([title])[2:-2] in prompt), ())


def use_practice_model(settings: Settings, model: str, base_url: str) -> Settings:
    """Returns the settings with this model and no other one, so that nothing is paid."""
    defaults = {name: field.get_default() for name, field in ModelSettings.model_fields.items()}
    prices = {f"openai/{model}": Price(input=Decimal(0), output=Decimal(0))}
    return settings.model_copy(
        update=defaults
        | {
            "model": f"openai/{model}",
            "model_base_url": base_url,
            "model_api_key": SecretStr(random_tokens.token_hex(16)),
            "model_prices": prices,
            "max_repairs": 0,
            "sandbox_features": (),
        }
    )


def _build_turns(kind: PracticeKind, instance: Instance) -> tuple[RecordedTurn, ...]:
    if kind == "empty":
        return (RecordedTurn("I change nothing.", _NOTHING),) * _MAX_FINISHES
    patch = f"{instance.gold_patch}{instance.test_patch}"
    apply = f"git apply --whitespace=nowarn <<'END-OF-PATCH'\n{patch}END-OF-PATCH\ngit status --short | head"
    return (
        RecordedTurn("Apply the reference fix.", RunShell(command=apply)),
        RecordedTurn("Run the tests.", _RUN_TESTS),
        *(RecordedTurn("Done.", _DONE),) * _MAX_FINISHES,
    )
