"""Options that several commands share."""

import argparse

JSON_ERROR_HELP = "also print a fatal error as one JSON object"
SETTINGS_OPTIONS = {
    "model": "model", "model_base_url": "base-url", "agent": "agent", "sandbox": "sandbox", "image": "image",
    "max_steps": "max-steps", "max_usd": "max-usd", "timeout": "timeout", "config": "config",
}  # fmt: skip
"""Maps the name of each setting to its command-line option."""


def add_run_argument(command: argparse.ArgumentParser) -> None:
    """Adds the argument that names a run."""
    command.add_argument("run", metavar="RUN", help="name of the run, its first characters, or `last`")


def add_config_and_json_options(command: argparse.ArgumentParser) -> None:
    """Adds the options of a command that only prints information."""
    command.add_argument("--config", metavar="FILE", help="settings file (default ./patchwright.toml)")
    command.add_argument("--json", action="store_true", help="print only one JSON object")


def add_settings_options(
    command: argparse.ArgumentParser,
    json_help: str = "print only the outcome, as one JSON object",
    *,
    has_several_models: bool = False,
) -> None:
    """Adds the settings that are options too, and `--json`. With several models, `--model` can be repeated."""
    group = command.add_argument_group("settings (override the environment and patchwright.toml)")
    group.add_argument(
        "--model",
        action="append" if has_several_models else "store",
        metavar="NAME",
        help="litellm name, such as anthropic/claude-sonnet-5 [PATCHWRIGHT_MODEL]",
    )
    group.add_argument(
        "--base-url",
        dest="model_base_url",
        metavar="URL",
        help="OpenAI-compatible endpoint [PATCHWRIGHT_MODEL_BASE_URL]",
    )
    group.add_argument(
        "--agent",
        metavar="NAME",
        help="the agent that does the work (default codeact) [PATCHWRIGHT_AGENT]",
    )
    group.add_argument(
        "--sandbox",
        choices=("docker", "local", "auto"),
        help="where the agent runs commands (default auto) [PATCHWRIGHT_SANDBOX]",
    )
    group.add_argument(
        "--image", metavar="IMAGE", help="base image of the Docker sandbox [PATCHWRIGHT_IMAGE]"
    )
    group.add_argument(
        "--max-steps",
        type=int,
        metavar="N",
        help="maximum number of steps, each a reply of the model (default 100) [PATCHWRIGHT_MAX_STEPS]",
    )
    group.add_argument(
        "--max-usd",
        metavar="USD",
        help="maximum cost in dollars, if the model's price is known (default 2.00) [PATCHWRIGHT_MAX_USD]",
    )
    group.add_argument(
        "--timeout",
        type=int,
        metavar="SECONDS",
        help="maximum seconds for the agent's work (default 3600) [PATCHWRIGHT_TIMEOUT]",
    )
    group.add_argument("--config", metavar="FILE", help="settings file (default ./patchwright.toml)")
    command.add_argument("--json", action="store_true", help=json_help)
