"""What an evaluation compares: models, and settings that are varied."""

import itertools
from collections.abc import Sequence
from pathlib import Path

from patchwright.resolver.errors import UsageError
from patchwright.resolver.settings.settings import Settings, build_settings
from patchwright.runtime.frozen_model import FrozenModel


class Variant(FrozenModel):
    """A model with settings."""

    model: str
    settings: tuple[tuple[str, str], ...] = ()
    """Names and values of the settings that differ from the operator's."""

    @property
    def name(self) -> str:
        """Name in the report, such as `anthropic/claude-sonnet-5 max_steps=50`."""
        return " ".join([self.model, *(f"{key}={value}" for key, value in self.settings)])


def apply_variant(settings: Settings, variant: Variant) -> Settings:
    """Returns the settings with the values of the variant. Raises SettingsError."""
    values = dict(variant.settings)
    checked = build_settings({"data": Path(), **values}, {key: f"--vary {key}" for key in values})
    update = {key: getattr(checked, key) for key in values}
    return settings.model_copy(update={**update, "model": variant.model})


def build_variants(models: Sequence[str], varied: Sequence[str]) -> tuple[Variant, ...]:
    """Returns every combination. `varied` contains texts such as `max_steps=50,100`. Raises UsageError."""
    choices = [_parse_setting(text) for text in varied]
    return tuple(
        Variant(model=model, settings=settings)
        for model in dict.fromkeys(models)
        for settings in itertools.product(*choices)
    )


def _parse_setting(text: str) -> list[tuple[str, str]]:
    key, _, values = text.partition("=")
    if key not in Settings.model_fields or key == "model" or not values:
        raise UsageError(f"--vary {text}: write SETTING=VALUE,VALUE with a setting of docs/configuration.md")
    return [(key, value) for value in values.split(",")]
