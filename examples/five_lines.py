"""An agent changes a directory: python five_lines.py DIRECTORY MESSAGE"""

import os
import sys

from patchwright import LLM, Conversation, LocalWorkspace, default_agent

llm = LLM(model=os.environ["MODEL"], base_url=os.environ.get("BASE_URL"))
with LocalWorkspace(sys.argv[1]) as workspace:
    conversation = Conversation(default_agent(llm), workspace)
    conversation.send_message(sys.argv[2])
    print(conversation.run().answer)
    print(workspace.diff().decode())
