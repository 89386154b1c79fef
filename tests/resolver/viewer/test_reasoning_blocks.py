"""The reasoning of a reply and the ids of its calls on the run page."""

import re
from html import unescape

from patchwright.resolver.secrets import SECRET_PLACEHOLDER, Secrets
from patchwright.resolver.tool_actions.control_actions import Think
from patchwright.runtime.actions import CreateFile, RunShell
from tests.resolver.sample_runs import model_reply, run_of, started
from tests.resolver.viewer.test_run_html import SECRET, render


def test_the_reasoning_of_a_step_is_folded_and_its_calls_have_their_ids() -> None:
    reasoning = (
        {"type": "thinking", "thinking": f"Is {SECRET} <b>the</b> sign?", "signature": "c2lnbmVk"},
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
        {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "Look first."}],
            "encrypted_content": "eA",
        },
        {"type": "reasoning_content", "value": "Then fix it."},
        {"type": "thought_signature", "call": 0, "value": "c2lnbmVk"},
    )
    reply = model_reply("toolu_01", RunShell(command="ls"), Think(thought="Hm."), thought="I look.")
    html = render(run_of(started(), reply.model_copy(update={"reasoning": reasoning})), Secrets([SECRET]))
    folded = html[html.index("Reasoning <small>") : html.index("I look.")]
    assert '<details class="text"><summary>' + folded in html  # Without the attribute `open`.
    shown = folded.partition('<div class="words">')[2].partition("</div>")[0]
    assert unescape(shown).split("\n\n") == [
        f"Is {SECRET_PLACEHOLDER} <b>the</b> sign?",
        "[redacted_thinking: not readable]",
        "Look first.",
        "Then fix it.",
        "[thought_signature: not readable]",
    ]
    assert "<b>the" not in folded
    assert not any(each in html for each in ("c2lnbmVk", "b3BhcXVl", SECRET))
    assert re.findall(r'class="call-id"[^>]*>([^<]+)<', html) == [
        "run_shell toolu_01",
        "think toolu_01.1",
    ]


def test_the_arguments_of_each_call_are_on_the_page_in_full() -> None:
    command = "".join(f"echo line {number}\n" for number in range(40))
    calls = (RunShell(command=command), CreateFile(path="notes.txt", content="first\nsecond <b>\n"))
    html = render(run_of(started(), model_reply("toolu_01", *calls)), Secrets([]))
    shown = unescape(re.sub(r"<[^>]+>", "", html))
    assert command.strip() in shown and "notes.txt" in shown
