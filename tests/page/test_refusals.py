"""What is said to those who are turned away: a sentence for each reason, and no reason that nobody gets."""

import re
from pathlib import Path
from typing import get_args

import pytest

from bot.page import shown
from bot.page.login import STATUS as AT_LOGIN
from bot.page.shown import Around, Refusal, Snag
from bot.page.web import STATUS

PAGE = Path(shown.__file__).parent


@pytest.mark.parametrize("why", get_args(Refusal))
def test_each_refusal_has_a_status_and_says_why(why: Refusal) -> None:
    page = shown.refused(Around("", None), why)
    assert STATUS[why] >= 400
    assert re.search(r"<h1>[^<]+</h1>\n<p>[^<]+\.</p>", page)


@pytest.mark.parametrize("why", get_args(Snag))
def test_each_reason_to_log_in_again_has_a_status_and_a_sentence(why: Snag) -> None:
    page = shown.login(Around("", None), "/", github=True, operator=True, why=why)
    assert why in AT_LOGIN
    assert re.search(r'<p role="alert" class="why">[^<]+\.</p>', page)


def test_no_sentence_is_kept_for_what_never_happens() -> None:
    raised = {
        name for file in PAGE.glob("*.py") for name in re.findall(r'Refused\("(\w+)"\)', file.read_text())
    }
    by_kind = {
        "forge",
        "method",
        "redis",
    }  # of other exceptions: `refusal_of`, and of what has no such address
    assert set(STATUS) == raised | by_kind == set(get_args(Refusal))
    told = re.findall(r'^  "(\w+)": \(', texts_of("refused"), re.MULTILINE)
    assert (len(told), set(told)) == (len(STATUS), set(STATUS))
    told = re.findall(r'^  "(\w+)": "', texts_of("login"), re.MULTILINE)
    assert (len(told), set(told)) == (len(AT_LOGIN), set(AT_LOGIN))


def texts_of(page: str) -> str:
    return (PAGE.parents[1] / "templates" / "page" / f"{page}.html.j2").read_text()
