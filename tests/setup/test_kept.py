"""What set-up keeps: whole or not at all, for one account alone, and below everything that an operator says."""

import stat
from pathlib import Path
from typing import Any

import pytest

from bot import compose
from bot.setup import kept
from bot.setup.code import LASTS, MOST_WRONG, Code, Visitor
from bot.setup.kept import ChosenModel, Kept, OwnApp, place_of
from bot.setup.wish import wish
from resolver.errors import SettingsError
from resolver.settings.settings import Settings

APP = OwnApp(
    id=7, slug="bot", html_url="https://github.com/apps/bot", client_id="Iv1", client_secret="c" * 20,
    private_key="-----BEGIN RSA PRIVATE KEY-----", webhook_secret="w" * 20, place=place_of("https://github.com"),
    public_url="https://bot.example",
)  # fmt: skip
MODEL = ChosenModel(model="openai/gpt-4o", model_api_key="sk-kept", model_base_url="https://m.example")


def settings(data: Path, found: Kept, **environment: str) -> Settings:
    kept.keep(data, found)
    environ = {"PATCHWRIGHT_DATA": str(data), "HOME": str(data), **environment}
    return compose.read_settings({}, environ, None, data)


def secret(value: Any) -> str:
    return str(value.get_secret_value())


def test_what_is_kept_are_settings(tmp_path: Path) -> None:
    made = settings(tmp_path, Kept(app=APP, model=MODEL))
    assert (made.app_id, made.oauth_client_id, made.public_url) == ("7", "Iv1", "https://bot.example")
    assert (secret(made.private_key), secret(made.webhook_secret)) == (APP.private_key, "w" * 20)
    assert (made.model, secret(made.model_api_key), made.model_base_url) == (
        "openai/gpt-4o", "sk-kept", "https://m.example",
    )  # fmt: skip
    assert not made.poll


def test_an_app_without_a_webhook_looks(tmp_path: Path) -> None:
    made = settings(tmp_path, Kept(app=APP.model_copy(update={"webhook_secret": None, "public_url": None})))
    assert (made.poll, made.webhook_secret, made.oauth_client_id) == (True, None, None)


def test_what_an_operator_says_goes_before_it_part_by_part(tmp_path: Path) -> None:
    found = Kept(app=APP, model=MODEL)
    other = settings(
        tmp_path, found, PATCHWRIGHT_MODEL="anthropic/claude", PATCHWRIGHT_PUBLIC_URL="https://b.example"
    )
    # The key of one provider is never sent to another.
    assert (other.model, other.model_api_key, other.model_base_url) == ("anthropic/claude", None, None)
    assert (other.app_id, other.public_url) == ("7", "https://b.example")
    token = settings(tmp_path, found, GITHUB_TOKEN="ghp_x")
    assert (token.app_id, token.private_key, token.webhook_secret, token.model) == (
        None,
        None,
        None,
        MODEL.model,
    )


def test_a_key_is_never_sent_to_another_github(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"GITHUB_API_URL names another GitHub than https://github\.com"):
        settings(tmp_path, Kept(app=APP), GITHUB_API_URL="https://evil.example/api/v3")
    same = settings(tmp_path, Kept(app=APP), GITHUB_API_URL="https://api.github.com/")
    assert same.app_id == "7"


def test_a_workflow_takes_nothing_of_it_and_a_repository_cannot_bring_one(tmp_path: Path) -> None:
    kept.keep(tmp_path / "data", Kept(app=APP, model=MODEL))
    environ = {"PATCHWRIGHT_DATA": str(tmp_path / "data"), "HOME": str(tmp_path)}
    assert compose.read_settings({}, environ, None, None).app_id is None
    clone = tmp_path / "clone"
    kept.keep(clone / "data", Kept(model=MODEL))
    (clone / ".git").mkdir()
    (clone / "patchwright.toml").write_text('data = "data"\n')
    with pytest.raises(SettingsError, match="sets data, which decides"):
        compose.read_settings({}, {"HOME": str(tmp_path)}, None, clone)


def test_it_is_for_one_account_alone_whatever_the_umask_was(tmp_path: Path) -> None:
    (tmp_path / "setup").mkdir(mode=0o755)
    kept.keep(tmp_path, Kept(app=APP))
    kept.keep(tmp_path, Kept(app=APP, model=MODEL))
    path = kept.path_in(tmp_path)
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path.parent, path)] == [0o700, 0o600]
    assert list(path.parent.iterdir()) == [path]
    assert kept.read(tmp_path) == Kept(app=APP, model=MODEL)


@pytest.mark.parametrize(
    "content", ["", "{", '{"app": {"id": "x", "private_key": "hunter2"}}', '{"new": 1}', "\0"]
)
def test_a_broken_file_is_named_and_not_quoted(tmp_path: Path, content: str) -> None:
    kept.keep(tmp_path, Kept())
    kept.path_in(tmp_path).write_text(content)
    with pytest.raises(SettingsError, match="is not what setting up has kept there") as told:
        kept.read(tmp_path)
    assert "hunter2" not in str(told.value)
    assert told.value.__cause__ is None


def test_secrets_do_not_show_in_what_is_printed_of_it() -> None:
    shown = repr(Kept(app=APP, model=MODEL))
    assert not any(one in shown for one in (APP.client_secret, APP.private_key, "w" * 20, "sk-kept"))


def test_each_github_has_its_addresses() -> None:
    api = {
        url: place_of(url).github_api_url
        for url in ("https://github.com/", "https://a.ghe.com", "https://g.corp/x")
    }
    assert list(api.values()) == [
        "https://api.github.com",
        "https://api.a.ghe.com",
        "https://g.corp/x/api/v3",
    ]
    assert place_of("https://g.corp").github_graphql_url == "https://g.corp/api/graphql"
    assert place_of("https://github.com").github_graphql_url == "https://api.github.com/graphql"


def test_what_is_written_on_github_leads_nobody_to_their_own_machine(tmp_path: Path) -> None:
    here, there = "http://localhost:8000", "http://bot.intra:8000"
    pages = {}
    for origin in (here, there):
        for reach in ("poll", "webhook"):
            made = wish({"reach": reach}, Settings(data=tmp_path), origin)
            assert made is not None and made.public_url == origin  # people there log in to the page
            found = Settings(data=tmp_path, public_url=made.public_url, poll=not made.webhook)
            pages[origin, reach] = found.page_of("a")
    assert pages == {
        (here, "poll"): None, (here, "webhook"): f"{here}/runs/a",
        (there, "poll"): f"{there}/runs/a", (there, "webhook"): f"{there}/runs/a",
    }  # fmt: skip


# --- the code -----------------------------------------------------------------------------------------------


def test_a_code_is_good_once_for_an_hour_and_twenty_wrong_tries() -> None:
    now = [0.0]
    once, late, guessed, fine = (Code(lambda: now[0]) for _ in range(4))
    assert len({code.text for code in (once, late, guessed, fine)}) == 4
    assert [once.enter(f" {once.text.lower().replace('-', ' ')} "), once.enter(once.text)] == [
        "right",
        "void",
    ]
    assert {guessed.enter(f"no {n}") for n in range(MOST_WRONG)} == {"wrong"}
    assert guessed.enter(guessed.text) == "void"
    assert {fine.enter("") for _ in range(MOST_WRONG - 1)} == {"wrong"}
    assert fine.enter(fine.text) == "right"
    now[0] = LASTS
    assert late.enter(late.text) == "void"


def test_a_visitor_is_known_by_the_last_token_for_an_hour() -> None:
    now = [0.0]
    visitor = Visitor(lambda: now[0])
    assert not visitor.knows("")
    first = visitor.admit()
    second = visitor.admit()
    assert (visitor.knows(first), visitor.knows(second), visitor.knows("é")) == (False, True, False)
    now[0] = LASTS
    assert not visitor.knows(second)
