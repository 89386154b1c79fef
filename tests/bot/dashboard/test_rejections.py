"""The texts of rejections and login problems: one for each reason, and no unused ones."""

import re
from pathlib import Path
from typing import get_args

import pytest

from patchwright.bot.dashboard import views
from patchwright.bot.dashboard.login import LOGIN_STATUS
from patchwright.bot.dashboard.views import LoginProblem, PageContext, RejectionReason
from patchwright.bot.dashboard.web_requests import REJECTION_STATUS

PACKAGE = Path(views.__file__).parent


@pytest.mark.parametrize("why", get_args(RejectionReason))
def test_each_rejection_has_a_status_and_a_text(why: RejectionReason) -> None:
    page = views.render_rejection(PageContext("", None), why)
    assert REJECTION_STATUS[why] >= 400
    assert re.search(r"<h1>[^<]+</h1>\n<p>[^<]+\.</p>", page)


@pytest.mark.parametrize("why", get_args(LoginProblem))
def test_each_login_problem_has_a_status_and_a_text(why: LoginProblem) -> None:
    page = views.render_login(PageContext("", None), "/", github=True, operator=True, problem=why)
    assert why in LOGIN_STATUS
    assert re.search(r'<p role="alert" class="alert">[^<]+\.</p>', page)


def test_there_are_no_unused_rejection_texts() -> None:
    raised = {
        name
        for file in PACKAGE.glob("*.py")
        for name in re.findall(r'VisitorRejected\("(\w+)"\)', file.read_text())
    }
    other_reasons = {
        "github_unavailable",
        "method_not_allowed",
        "redis_unavailable",
    }  # from other exceptions: `rejection_reason` and `_handle_http_error`
    assert set(REJECTION_STATUS) == raised | other_reasons == set(get_args(RejectionReason))
    keys = re.findall(r'^  "(\w+)": \(', template_text("rejection"), re.MULTILINE)
    assert (len(keys), set(keys)) == (len(REJECTION_STATUS), set(REJECTION_STATUS))
    keys = re.findall(r'^  "(\w+)": "', template_text("login"), re.MULTILINE)
    assert (len(keys), set(keys)) == (len(LOGIN_STATUS), set(LOGIN_STATUS))


def template_text(page: str) -> str:
    return (PACKAGE.parents[1] / "templates" / "dashboard" / f"{page}.html.j2").read_text()
