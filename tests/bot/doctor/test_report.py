"""The text report of `patchwright doctor`."""

from patchwright.bot.doctor.report import format_result, format_summary
from patchwright.bot.doctor.runner import CheckResult


def test_a_result_is_wrapped_to_the_terminal_without_breaking_urls() -> None:
    url = f"https://github.test/settings/installations/{'7' * 30}"
    result = CheckResult(
        name="permissions", state="warning", detail="It lacks a right that it needs.", fix=f"See {url}."
    )
    lines = format_result(result, color=False, width=60).split("\n")
    assert lines == [
        "warning  permissions       It lacks a right that it needs.",
        f"{'':27}-> See",
        f"{'':27}{url}.",
    ]
    assert format_result(result, color=False).count("\n") == 1
    assert format_summary([result]) == "0 ok, 1 warning, 0 failed."
