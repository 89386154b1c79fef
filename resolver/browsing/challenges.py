"""Pages that stand in the way of the one that was asked for: told from what they show. Pure, and conservative.

A page that is wrongly taken for one costs a task; one that is missed costs a few steps. So each rule wants a short
page that says two things of a kind, or one that no other page says.
Source: arXiv:2506.03011, section 5.2 (sites that block by CAPTCHAs and security measures).
"""

import re
from collections.abc import Sequence

from runtime.observations import Page

LONGEST = 6_000  # characters of a tree; what stands in the way of a page is no long read
PATIENCE = 2
"""Pages in a row, each after a reply, that stand in the way: then the task is over."""

_TITLES = re.compile(
    r"just a moment\W*|attention required!?( \| cloudflare)?|(please )?verify (that )?you('re| are) (a )?human\W*"
    r"|human verification|(are you a )?robot( or human)?( check)?\?|robot check|bot verification|security check"
    r"|security verification|checking your browser\W*|ddos-guard|pardon our interruption\W*|one more step\W*"
    r"|captcha( challenge)?|access to this page has been denied\W*|client challenge|vercel security checkpoint"
    r"|making sure you('|’)re not a bot\W*",
    re.IGNORECASE,
)
_FRAMES = re.compile(
    r"Iframe '[^'\n]*(cloudflare security challenge|recaptcha|hcaptcha|turnstile|arkose|funcaptcha|datadome|geetest"
    r"|captcha|verification challenge)",
    re.IGNORECASE,
)
_WORDS = re.compile(
    r"\bverify(ing)? (that )?you('re| are) (a )?human\b|\bprove (that )?you('re| are) (a )?human\b"
    r"|\b(that )?you('re| are) not a (robot|bot)\b|\bi'm not a robot\b|\bare you a (robot|human)\b"
    r"|\bchecking (your browser|if the site connection is secure)\b|\bunusual traffic from your\b"
    r"|\breview the security of your connection\b|\bcomplete the (security check|captcha)\b"
    r"|\bsolve (the|this) (captcha|puzzle)\b"
    r"|\bpress (&|and) hold\b|\benable javascript and cookies to continue\b|\btype the characters you see\b"
    r"|\benter the characters\b|\bautomated (access|requests|queries)\b|\bperforming security verification\b",
    re.IGNORECASE,
)
_CONSENT = re.compile(
    r"\b(we|our partners|and our \d+ partners)\b[^'\n]{0,80}\b(cookies|consent)\b|\bbefore you continue\b"
    r"|\byour privacy choices\b|\b(cookie|consent) (wall|required)\b|\baccept (all )?cookies to (continue|read)\b",
    re.IGNORECASE,
)
_SAID = re.compile(
    r"^[ \t]*(\[\w+\] )?(StaticText|heading|paragraph|alert|checkbox|button|dialog|image)\b.*$", re.MULTILINE
)
_FIELD = re.compile(r"^[ \t]*\[\w+\] (textbox|searchbox|combobox)\b(?P<rest>.*)$", re.MULTILINE)
_WAY_ON = re.compile(r"^[ \t]*\[\w+\] (button|link|checkbox)\b", re.MULTILINE)


def challenge(page: Page) -> str | None:
    """What stands in the way: "a test for humans" or "a wall of consent without a way on"; None: nothing seen."""
    if len(page.tree) > LONGEST:
        return None
    if _tests_for_humans(page):
        return "a test for humans"
    said = " ".join(line[0] for line in _SAID.finditer(page.tree))
    if _CONSENT.search(said) and not _WAY_ON.search(page.tree):
        return "a wall of consent without a way on"
    return None


def _tests_for_humans(page: Page) -> bool:
    # Where more than one thing is to be filled in, the test is part of a form, and not in the way of a page.
    fields = [field for field in _FIELD.finditer(page.tree) if "captcha" not in field["rest"].lower()]
    if len(fields) > 1:
        return False
    titled = _TITLES.fullmatch(page.title.strip()) is not None
    framed = _FRAMES.search(page.tree) is not None
    words = {match[0].lower() for line in _SAID.finditer(page.tree) for match in _WORDS.finditer(line[0])}
    return titled + framed + min(len(words), 2) >= 2


def blocked(seen: Sequence[Page]) -> str | None:
    """What stands in the way after so many tries, if these are the pages after each reply so far."""
    last = [challenge(page) for page in seen[-PATIENCE:]]
    return last[-1] if len(last) == PATIENCE and all(last) else None
