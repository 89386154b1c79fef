"""Parsing the form that describes the App."""

from pathlib import Path

import pytest

from patchwright.bot.setup.app_form import AppForm, parse_app_form
from patchwright.resolver.settings.settings import Settings

WEBHOOK = {"server_url": "", "organization": "", "public_url": "", "reach": "webhook"}


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"server_url": "github.com"}, "invalid_github_url"),
        ({"server_url": "https://evil.example/<script>"}, "invalid_github_url"),
        ({"organization": "../settings"}, "invalid_organization"),
        ({"public_url": "https://a b"}, "invalid_public_url"),
        ({"public_url": "https://user:word@host"}, "invalid_public_url"),
        ({"public_url": "https://localhost:8000/"}, "loopback_webhook"),
        ({"public_url": "https://[::1]", "confirmed_url": "https://localhost"}, "loopback_webhook"),
    ],
)
def test_each_invalid_field_has_its_own_message(tmp_path: Path, wrong: dict[str, str], problem: str) -> None:
    assert parse_app_form(WEBHOOK | wrong, Settings(data=tmp_path), "https://bot.example.com") == problem


def test_a_loopback_url_is_accepted_with_polling_a_local_github_or_confirmation(tmp_path: Path) -> None:
    here = "http://localhost:8000"
    for form in ({"reach": "poll"}, {"server_url": "http://127.0.0.1:3000"}, {"confirmed_url": here}):
        assert isinstance(parse_app_form(WEBHOOK | form, Settings(data=tmp_path), here), AppForm), form
