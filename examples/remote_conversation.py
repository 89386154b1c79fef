"""An agent works on a server: python remote_conversation.py SERVER FILE MESSAGE, with the key in API_KEY"""

import os
import sys
from pathlib import Path

from patchwright import LLM, Conversation, RemoteWorkspace, default_agent

server, file, message = sys.argv[1:]
llm = LLM(
    model=os.environ["MODEL"], base_url=os.environ.get("BASE_URL"), api_key=os.environ["OPENAI_API_KEY"]
)
with RemoteWorkspace(server, api_key=os.environ["API_KEY"]) as workspace:
    workspace.file_upload(Path(file).name, Path(file).read_bytes())
    conversation = Conversation(default_agent(llm), workspace)
    conversation.send_message(message)
    print(conversation.run().answer)
    print(workspace.file_download(Path(file).name).decode())
