"""Detects CAPTCHA and consent pages that are shown instead of the requested page. Only visible content is
examined. All functions are pure.

If a normal page is taken for a challenge, the task ends. If a challenge is missed, only a few steps are lost.
Each rule therefore requires a short page with two independent signs, or with one sign that no normal page
has. Source: arXiv:2506.03011, section 5.2 (sites that block by CAPTCHAs and security measures).
"""

import re
from collections.abc import Sequence

from patchwright.runtime.observations import PageSnapshot

MAX_TREE_LENGTH = 6_000  # characters of the accessibility tree; challenge pages are short
MAX_CHALLENGE_PAGES = 2
"""The agent stops after this many consecutive replies that led to a challenge, such as a CAPTCHA."""

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
_PHRASES = re.compile(
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
_VISIBLE_TEXT = re.compile(
    r"^[ \t]*(\[\w+\] )?(StaticText|heading|paragraph|alert|checkbox|button|dialog|image)\b.*$", re.MULTILINE
)
_FIELD = re.compile(r"^[ \t]*\[\w+\] (textbox|searchbox|combobox)\b(?P<rest>.*)$", re.MULTILINE)
_INTERACTIVE = re.compile(r"^[ \t]*\[\w+\] (button|link|checkbox)\b", re.MULTILINE)


def detect_challenge(page: PageSnapshot) -> str | None:
    """Returns "a CAPTCHA", "a consent wall", or None if the page is not a known challenge."""
    if len(page.tree) > MAX_TREE_LENGTH:
        return None
    if _is_captcha(page):
        return "a CAPTCHA"
    visible_text = " ".join(line[0] for line in _VISIBLE_TEXT.finditer(page.tree))
    if _CONSENT.search(visible_text) and not _INTERACTIVE.search(page.tree):
        return "a consent wall"
    return None


def _is_captcha(page: PageSnapshot) -> bool:
    # If the page has several input fields, the CAPTCHA is part of a form and does not block the page.
    fields = [field for field in _FIELD.finditer(page.tree) if "captcha" not in field["rest"].lower()]
    if len(fields) > 1:
        return False
    has_title = _TITLES.fullmatch(page.title.strip()) is not None
    has_frame = _FRAMES.search(page.tree) is not None
    phrases = {
        match[0].lower() for line in _VISIBLE_TEXT.finditer(page.tree) for match in _PHRASES.finditer(line[0])
    }
    return has_title + has_frame + min(len(phrases), 2) >= 2


def find_blocking_challenge(pages: Sequence[PageSnapshot]) -> str | None:
    """Returns the challenge if all of the last MAX_CHALLENGE_PAGES pages were challenges. Otherwise, returns
    None. `pages` contains the page after each reply.
    """
    recent = [detect_challenge(page) for page in pages[-MAX_CHALLENGE_PAGES:]]
    return recent[-1] if len(recent) == MAX_CHALLENGE_PAGES and all(recent) else None
