"""Loads the settings of a command from its options, the environment and the settings file."""

import argparse
import sys
from pathlib import Path

from patchwright.bot.cli.options import SETTINGS_OPTIONS
from patchwright.bot.composition import composition_root
from patchwright.bot.credentials import collect_secrets
from patchwright.bot.observe.logging_setup import configure_logging
from patchwright.resolver.settings.settings import Settings


def load_settings(options: argparse.Namespace, directory: Path | None = Path()) -> Settings:
    """Loads the settings. `directory` is where the settings file is looked for; None for no file."""
    overrides = {key: getattr(options, key, None) for key in (*SETTINGS_OPTIONS, "poll") if key != "config"}
    config = Path(options.config) if options.config else None
    settings = composition_root.read_settings(
        overrides, composition_root.read_environment(), config, directory and directory.resolve()
    )
    # The dashboard and exported runs use these templates too, so the directory is set before any run starts.
    if settings.templates is not None:
        from patchwright.resolver.rendering.jinja_templates import set_template_directory

        set_template_directory(settings.templates)
    return settings


def load_server_settings(options: argparse.Namespace) -> Settings:
    """Loads the settings of a server and configures logging from them."""
    settings = load_settings(options)
    secrets = collect_secrets(settings, composition_root.read_environment())
    configure_logging(settings, secrets, is_terminal=sys.stderr.isatty())
    return settings


def settings_arguments(options: argparse.Namespace, *names: str) -> list[str]:
    """Converts the settings in `options` to command-line arguments for another patchwright command.

    If `names` is empty, converts all settings that the user gave as options. Otherwise, converts only the
    settings in `names`.
    """
    values = {
        name: getattr(options, key) for key, name in SETTINGS_OPTIONS.items() if not names or key in names
    }
    return [f"--{name}={value}" for name, value in values.items() if value is not None]
