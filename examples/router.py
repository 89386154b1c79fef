"""A small model begins, a large one takes over after three replies: python router.py DIRECTORY MESSAGE"""

import os
import sys
from collections.abc import Sequence
from typing import Any

from patchwright import LLM, Agent, Conversation, RouterLLM


class SmallThenLarge(RouterLLM):
    replies_of_small: int = 3

    def select_llm(self, messages: Sequence[Any]) -> str:
        replies = sum(message.role == "assistant" for message in messages)
        return "small" if replies < self.replies_of_small else "large"


url = os.environ.get("BASE_URL")
models = {
    "small": LLM(model=os.environ["MODEL"], base_url=url),
    "large": LLM(model=os.environ.get("LARGE_MODEL", os.environ["MODEL"]), base_url=url),
}
with Conversation(Agent(llm=SmallThenLarge(llms_for_routing=models)), sys.argv[1]) as conversation:
    conversation.send_message(sys.argv[2])
    print(conversation.run().answer)
    for entry in conversation.events:
        if entry.event.kind == "model_reply":
            print(entry.seq, entry.event.usage.model)
