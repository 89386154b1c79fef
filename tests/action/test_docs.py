"""action.yml passes its inputs on, and docs/action.md describes them."""

import re
from pathlib import Path
from typing import Any

import yaml

from patchwright.resolver.settings.settings import environment_variable, parse_environment

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/action.md").read_text()
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())


def table(named: dict[str, dict[str, Any]], head: str) -> str:
    rows = [f"| `{name}` | {' '.join(facts['description'].split())} |" for name, facts in named.items()]
    return "\n".join([f"| {head} | |", "| --- | --- |", *rows])


def test_every_input_and_output_is_described_as_in_action_yml() -> None:
    for named, head in ((ACTION["inputs"], "input"), (ACTION["outputs"], "output")):
        assert table(named, head) in PAGE, f"put this into docs/action.md:\n{table(named, head)}"


def test_every_example_is_mentioned() -> None:
    examples = [path.name for path in (ROOT / ".github/examples").glob("*.yml")]
    assert len(examples) == 7
    assert not [name for name in examples if f"/.github/examples/{name})" not in PAGE]


def test_the_first_example_reacts_to_the_commands_that_its_comments_suggest() -> None:
    one, two = (
        yaml.safe_load((ROOT / ".github/examples" / name).read_text())
        for name in ("label.yml", "two-jobs.yml")
    )
    assert len(one["jobs"]) == 1
    assert one[True] == {
        event: two[True][event] for event in ("issues", "issue_comment")
    }  # YAML 1.1: on is true
    condition = two["jobs"]["resolve"]["if"].replace("github.event.review.body || ", "")
    assert "".join(one["jobs"]["fix"]["if"].split()) == "".join(condition.split())


def test_the_first_example_shows_where_the_url_of_an_own_endpoint_goes() -> None:
    text = (ROOT / ".github/examples/label.yml").read_text()
    example = yaml.safe_load(text.replace("# model-base-url:", "model-base-url:"))
    assert example["jobs"]["fix"]["steps"][0]["with"]["model-base-url"].endswith("/v1")


def test_every_step_output_in_the_page_exists() -> None:
    snippets = "".join(re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))
    used = re.findall(r"\b(\w+)\.([\w-]+)\.outputs\.([\w-]+)", snippets)
    assert used
    assert {(context, step) for context, step, _ in used} == {("steps", "patchwright")}
    assert "`id: patchwright`" in PAGE
    assert {output for _, _, output in used} <= set(ACTION["outputs"])


def test_images_are_cached_only_on_a_hosted_runner_whose_engine_has_no_images_of_others() -> None:
    steps = ACTION["runs"]["steps"]
    (named,) = (step for step in steps if step.get("id") == "images")
    assert "&& runner.environment == 'github-hosted'" in named["if"] and "||" not in named["if"]
    conditions = {step["name"]: step["if"] for step in steps if "images" in step["name"]}
    assert conditions.pop("Name the images") == named["if"]
    after = (
        "steps.images.outputs.key != ''",
        "steps.cached.outputs.cache-hit == 'true'",
        "steps.packed.outputs.made",
    )
    assert len(conditions) == 4 and all(condition.startswith(after) for condition in conditions.values())


def test_every_input_is_used() -> None:
    assert set(re.findall(r"\binputs\.([\w-]+)", yaml.safe_dump(ACTION["runs"]))) == set(ACTION["inputs"])


def test_each_setting_of_the_action_is_set_by_the_input_of_its_name() -> None:
    (run,) = (step for step in ACTION["runs"]["steps"] if step.get("id") == "run")
    inputs = {
        name: value.removeprefix("${{ inputs.").removesuffix(" }}")
        for name, value in run["env"].items()
        if name.startswith("PATCHWRIGHT_") and value.startswith("${{ inputs.")
    }
    assert {name: environment_variable(value.replace("-", "_")) for name, value in inputs.items()} == {
        name: name for name in inputs
    }
    assert {"model", "max-usd", "max-steps", "timeout", "allowed-hosts"} <= set(inputs.values())
    parse_environment(dict.fromkeys(inputs, "1"))  # Raises SettingsError for an unknown name.
