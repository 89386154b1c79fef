"""Prints each step, and pauses after the first edit: python follow_events.py DIRECTORY MESSAGE"""

import os
import sys

from patchwright import LLM, Conversation, Entry, ModelReply, ToolResult, default_agent

edits = 0


def show(entry: Entry) -> None:
    global edits
    if isinstance(entry.event, ModelReply):
        for call in entry.event.calls:
            print(entry.seq, call.action.describe().title)
            edits += call.action.is_edit
    if isinstance(entry.event, ToolResult) and edits == 1:
        edits += 1
        conversation.pause()


llm = LLM(model=os.environ["MODEL"], base_url=os.environ.get("BASE_URL"))
with Conversation(default_agent(llm), sys.argv[1], callbacks=[show]) as conversation:
    conversation.send_message(sys.argv[2])
    print(conversation.run().status)
    print(conversation.run().answer)
