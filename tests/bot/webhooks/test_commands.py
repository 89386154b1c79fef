"""When a comment calls the bot, and what it asks."""

import time

import pytest

from bot.webhooks.commands import find_command, thanks_alone
from resolver.request import request


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("@agent", ""),
        ("@agent fix the sign in add()", "fix the sign in add()"),
        ("@Agent: fix it", "fix it"),
        ("Could you have a look, @agent?", ""),
        (
            "The sign is wrong.\r\n\r\n@agent please mend it\r\nand add a test\r\n",
            "please mend it\r\nand add a test",
        ),
        ("(@agent retry)", "retry)"),
        ("- @agent look here", "look here"),
        ("> @agent said so\n\n@agent do it again", "do it again"),
        ("> quoted\n@agent an answer below a quotation", "an answer below a quotation"),
        ("`@agent` is the word; @agent go", "go"),
        ("<!-- note --> @agent go", "go"),
        ("@agent use <!-- not --> this", "use  this"),
        ("@agent make it print `<!-- x -->`", "make it print `<!-- x -->`"),
        ("@agent run\n```\npytest -x\n```", "run\n```\npytest -x\n```"),
        ("```\ncode\n```\n@agent after the fence", "after the fence"),
        ("one ` tick never closed, @agent go", "go"),
        ("a <!-- never closed in this paragraph, @agent go", "go"),
        ("- item\n\n    @agent in the item's second paragraph", "in the item's second paragraph"),
        ("- a ` b\n- @agent go ` c", "go ` c"),
        ("@agents no, @agent yes", "yes"),
        ("É@agent no, «@agent» yes", "» yes"),
    ],
)
def test_a_mention_in_the_authors_own_words_is_a_command(text: str, command: str) -> None:
    assert find_command(text, "@agent") == command


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nobody is called",
        "@agents",
        "@agent-smith",
        "@agent_1",
        "@agent/team",
        "@agent.example.org",
        "@agent@host",
        "foo@agent",
        "@@agent",
        "https://example.org/@agent",
        "\\@agent",
        "`@agent fix`",
        "`` a ` @agent ``",
        "`over two\nlines @agent`",
        "```\n@agent fix\n```",
        "~~~ text\n@agent fix\n~~~",
        "````\n```\n@agent fix\n````",
        "```\n@agent in a fence that is never closed",
        "```\n- ```\n@agent still in it",
        "- ```\n  @agent in an item's fence\n  ```",
        "words\n\n    @agent in indented code",
        "\t@agent in indented code",
        "> @agent fix",
        "- > @agent fix",
        "   > @agent fix",
        "<!-- @agent fix -->",
        "<!--\n\n@agent fix\n\n-->",
        "<!-- never closed\n\n@agent fix",
        "text <!-- @agent --> text",
    ],
)
def test_a_mention_elsewhere_is_none(text: str) -> None:
    assert find_command(text, "@agent") is None


def test_the_mention_is_the_operators_to_choose() -> None:
    assert find_command("/fix now", "/fix") == "now"
    assert find_command("see src/fix and /fixes", "/fix") is None
    assert find_command("c++? c++: go", "c++:") == "go"  # no pattern, only letters


@pytest.mark.parametrize(
    "text",
    [
        "\n" * 250_000,
        "".join("`" * length + " " for length in range(700)),
        "x " + "<!--" * 60_000,
        "x " + "` " * 125_000,
        ("`" * 999 + "x") * 250,
        "<!-- -->" * 30_000,
        "x\n<!--\n" * 30_000,
        "- " * 125_000,
        ">" * 250_000,
        "@agents " * 30_000,
        "model=a " * 30_000,
        "please " * 30_000,
        "x=y " * 60_000,
        " " * 250_000,
    ],
    ids=lambda text: repr(text[:8]),
)
def test_no_text_takes_more_than_its_length(text: str) -> None:
    """250 kB, four times what GitHub lets pass; what is quadratic takes minutes here."""
    began = time.process_time()
    find_command(text + "@agent", "@agent")
    request(text)
    assert time.process_time() - began < 3


@pytest.mark.parametrize(
    "text",
    [
        "Thanks @agent!",
        "@agent thank you so much 🎉",
        "Great work, @agent, thanks for the fix.",
        "@agent: thx",
    ],
)
def test_thanks_ask_for_nothing(text: str) -> None:
    assert thanks_alone(text, "@agent")


@pytest.mark.parametrize(
    "text",
    [
        "@agent",
        "@agent please",
        "Thanks! @agent now mend sub() as well",
        "@agent great",
        "@agent thanks, retry",
    ],
)
def test_more_than_thanks_asks_for_something(text: str) -> None:
    assert not thanks_alone(text, "@agent")
