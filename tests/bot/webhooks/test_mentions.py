"""Mentions of the bot in comments, and the commands after them."""

import time

import pytest

from patchwright.bot.webhooks.mentions import find_command, is_only_thanks
from patchwright.resolver.command_parser import parse_request


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("@agent", ""),
        ("@agent fix the sign in add()", "fix the sign in add()"),
        ("@Agent: fix it", "fix it"),
        ("Could you have a look, @agent?", ""),
        (
            "The sign is wrong.\r\n\r\n@agent please fix it\r\nand add a test\r\n",
            "please fix it\r\nand add a test",
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
        ("<b>@agent</b> go", "</b> go"),
        ("<pre>log</pre> @agent go", "go"),
        ("<PRE class=log>\n```\nor ` so\n\n</Pre>\n@agent go", "go"),
        ("<blockquote>\n\nthey said\n\n</blockquote>\n\n@agent go", "go"),
        ("<code>a</code> and <code>b</code>, @agent go", "go"),
        ("a `<code>` tag, @agent go", "go"),
        ("```\n<pre>\n```\n@agent go", "go"),
        ("\\<code> @agent go</code>", "go</code>"),
        ("the <code> tag that is never closed, @agent go", "go"),
        ("if a <b and c> d, @agent go", "go"),
        ("@agent make it a List<String>", "make it a List<String>"),
        ("@agent say <code>x=1</code> and </code>", "say <code>x=1</code> and </code>"),
        ("[@agent](https://e.example) go", "](https://e.example) go"),
        ("@agent see [docs](https://e.example/a) now", "see [docs](https://e.example/a) now"),
        ("@agent see [docs][1]\n\n[1]: /a", "see [docs][1]\n\n[1]: /a"),
        ("([text](/a)) @agent go", "go"),
        ("words\n[a]: @agent go", "go"),
        ('[a]: b "\n\n@agent go', "go"),
    ],
)
def test_a_mention_in_the_authors_own_prose_is_a_command(text: str, command: str) -> None:
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
        "first.a@agent",
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
        "<pre>\n@agent stop\n</pre>",
        "<pre>\n\n@agent stop\n\n</pre>\n",
        "- <pre>\n  @agent stop\n  </pre>",
        "<pre lang='x'>never closed\n\n@agent stop",
        "see <pre>@agent stop</pre>",
        "<code>@agent retry</code>",
        "<code>\n\n@agent retry\n\n</code>",
        "<CODE>over two\nlines, @agent</Code >",
        "<kbd>@agent</kbd> <samp>@agent</samp> <tt>@agent</tt>",
        "<blockquote>@agent fix it</blockquote>",
        "<blockquote>\n\n@agent fix it\n\n</blockquote>",
        "<blockquote><blockquote>a</blockquote>@agent fix it</blockquote>",
        "<blockquote>\n<p>never closed\n\n@agent fix it",
        "they said <q>@agent fix it</q>",
        "<code>`</code>` @agent</code>",
        "<img alt='@agent stop' src=x>",
        '<a href="/" title="for\n@agent">here</a>',
        "<b title=`> @agent `",
        "[text](https://e.example/?a=@agent)",
        "[text](@agent)",
        '[text](/a "@agent fix it")',
        "[text](<@agent fix it>)",
        "[text](https://e.example/(@agent))",
        "![picture](a.png '@agent fix')",
        "https://e.example/?a=@agent",
        "www.e.example/?a=@agent",
        "<mailto:@agent>",
        '[name]: /a "@agent fix"',
        '[name]: /a\n  "@agent fix\nnow"',
        "words\n\n[a]: b\n[name]: /a (@agent)",
    ],
)
def test_a_mention_in_code_quotes_links_or_hidden_text_is_ignored(text: str) -> None:
    assert find_command(text, "@agent") is None


def test_the_mention_is_configurable() -> None:
    assert find_command("/fix now", "/fix") == "now"
    assert find_command("see src/fix and /fixes", "/fix") is None
    assert find_command("c++? c++: go", "c++:") == "go"  # a plain string, not a regular expression


@pytest.mark.slow
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
        "<code>" * 40_000,
        "<pre>x\n" * 40_000,
        "x <pre>" * 40_000,
        "<code></code>" * 20_000,
        "<a " * 80_000,
        "<a b='" * 40_000,
        "<a b=\"<a c='" * 20_000,
        "<a" + " b" * 125_000,
        "<a" + " " * 250_000,
        "<" + "a" * 250_000,
        "</" * 125_000,
        '](a "' * 60_000,
        "](a (" * 60_000,
        "](<" * 80_000,
        "https://" * 30_000,
        '[a]: b "\n\n' * 25_000,
        "x\n\n[a]: b (\n" * 25_000,
        "[a]:\n" * 60_000,
        "[" * 250_000,
    ],
    ids=lambda text: repr(text[:8]),
)
def test_parsing_takes_linear_time(text: str) -> None:
    """250 kB is four times GitHub's limit for a comment; quadratic code would take minutes."""

    def measure() -> float:
        started_at = time.process_time()
        find_command(text + "@agent", "@agent")
        parse_request(text)
        return time.process_time() - started_at

    assert any(measure() < 3 for _ in range(3))  # once more, because a busy machine counts more time


@pytest.mark.parametrize(
    "text",
    [
        "Thanks @agent!",
        "@agent thank you so much 🎉",
        "Great work, @agent, thanks for the fix.",
        "@agent: thx",
    ],
)
def test_thanks_are_no_request(text: str) -> None:
    assert is_only_thanks(text, "@agent")


@pytest.mark.parametrize(
    "text",
    [
        "@agent",
        "@agent please",
        "Thanks! @agent now fix sub() as well",
        "@agent great",
        "@agent thanks, retry",
        "@agent " + "thanks so much " * 20,  # nobody says only thanks at such length
    ],
)
def test_more_than_thanks_is_a_request(text: str) -> None:
    assert not is_only_thanks(text, "@agent")
