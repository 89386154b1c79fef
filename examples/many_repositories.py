"""Resolves one issue in many repositories, two at a time: python many_repositories.py ISSUE_FILE REPOSITORY..."""

import asyncio
import os
import sys
from pathlib import Path

from patchwright import LLM, aresolve_issue

llm = LLM(model=os.environ["MODEL"], base_url=os.environ.get("BASE_URL"))


async def main(issue: str, repositories: list[str]) -> None:
    at_a_time = asyncio.Semaphore(2)

    async def resolve(repository: str) -> None:
        async with at_a_time:
            sandbox = "local" if os.environ.get("SANDBOX") == "local" else "docker"
            resolution = await aresolve_issue(repository, issue, llm, sandbox=sandbox)
            print(f"{Path(repository).name}: {resolution.verdict}, {len(resolution.patch)} bytes")

    await asyncio.gather(*map(resolve, repositories))


asyncio.run(main(Path(sys.argv[1]).read_text(), sys.argv[2:]))
