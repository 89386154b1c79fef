"""What the proof tells the agent, as `prose.py`: one typed function per text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from resolver.prose import render

if TYPE_CHECKING:
    from resolver.domain import Verdict


def sent_back(verdict: Verdict) -> str:
    """What the agent hears when its patch breaks tests that passed before, or fails those that it brings."""
    return render("prompts/sent_back.md.j2", verdict=verdict)
