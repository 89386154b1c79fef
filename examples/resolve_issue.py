"""Resolves an issue and prints the verified patch: python resolve_issue.py REPOSITORY ISSUE_FILE"""

import os
import sys
from pathlib import Path

from patchwright import LLM, resolve_issue

llm = LLM(model=os.environ["MODEL"], base_url=os.environ.get("BASE_URL"))
resolution = resolve_issue(
    sys.argv[1],
    Path(sys.argv[2]).read_text(),
    llm,
    sandbox="local" if os.environ.get("SANDBOX") == "local" else "docker",
)
print(f"{resolution.verdict}, {resolution.steps} steps")
print(resolution.patch.decode())
