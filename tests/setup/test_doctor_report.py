"""What `patchwright doctor` found, as a person reads it."""

from bot.doctor.examine import Finding
from bot.doctor.report import line


def test_a_finding_is_folded_to_the_window_below_its_own_column_and_no_address_is_broken() -> None:
    url = f"https://github.test/settings/installations/{'7' * 30}"
    seen = Finding(
        name="permissions", state="warning", seen="It lacks a right that it needs.", mend=f"See {url}."
    )
    told = line(seen, colour=False, width=60).split("\n")
    assert told == [
        "warning  permissions       It lacks a right that it needs.",
        f"{'':27}-> See",
        f"{'':27}{url}.",
    ]
    assert line(seen, colour=False).count("\n") == 1
