"""The file action.yml fits the program that it starts."""

import json
import re
from pathlib import Path

import yaml

from patchwright.bot.github_action.step_report import OUTPUTS
from patchwright.resolver.settings.server_settings import INPUTS
from patchwright.resolver.settings.settings import parse_environment

ACTION = (Path(__file__).parents[3] / "action.yml").read_text()


def test_action_yml_declares_the_written_outputs() -> None:
    assert set(re.findall(r"steps\.run\.outputs\.([\w-]+)", ACTION)) == set(OUTPUTS)


def test_action_yml_sets_only_known_variables() -> None:
    environ = dict(re.findall(r"^ +((?:PATCHWRIGHT|GITHUB)_\w+): \$\{\{ (.+) \}\}", ACTION, re.MULTILINE))
    assert set(parse_environment(dict.fromkeys(environ, "1"))) >= {
        "model",
        "model_api_key",
        "github_token",
        "app_id",
    }
    assert parse_environment(dict.fromkeys(environ, "")) == {}  # An input that is not set.


def test_every_input_of_action_yml_is_used_and_none_is_interpolated_in_a_script() -> None:
    action = yaml.safe_load(ACTION)
    steps = action["runs"]["steps"]
    used = set(re.findall(r"inputs\.([\w-]+)", json.dumps(steps)))
    assert used == set(action["inputs"])
    scripts = [step["run"] for step in steps if "run" in step]
    assert len(scripts) >= 4
    assert not [script for script in scripts if "${{" in script]


def test_every_variable_that_action_yml_sets_from_an_input_has_its_input_in_messages() -> None:
    (run,) = (each for each in yaml.safe_load(ACTION)["runs"]["steps"] if each.get("id") == "run")
    given = {
        name: value.removeprefix("${{ inputs.").removesuffix(" }}")
        for name, value in run["env"].items()
        if "inputs." in value and name != "PART"
    }
    assert given == INPUTS
