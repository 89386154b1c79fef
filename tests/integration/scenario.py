"""The base class of integration tests: an agent does a task in a workspace, and the result is checked."""

import difflib
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from pydantic import PrivateAttr

from patchwright import LLM, Agent, Conversation, LocalWorkspace, Tool
from patchwright.resolver.llm.model import ChatMessage, Model, Reply, ToolSpec, WrapperModel
from tests.resolver.git_repository import Repository
from tests.resolver.recorded_model import MESSAGES, open_recording

DATE = "2026-11-20T12:00:00Z"
"""Date of the first commit. With a fixed date, the commit has the same id everywhere."""


class BaseIntegrationTest(ABC):
    """A task with a recorded model. A scenario is a subclass with three methods: setup, tools, and verify_result.

    `case` is a directory with the recording and whatever the methods need, and `root` is the work directory.
    """

    workspace: ClassVar[type[LocalWorkspace]] = LocalWorkspace

    def __init__(self, case: Path, root: Path) -> None:
        self.case = case
        self.root = root

    @abstractmethod
    def setup(self) -> None:
        """Creates the work directory."""

    @abstractmethod
    def tools(self) -> list[Tool]:
        """Returns the tools of the agent."""

    @abstractmethod
    def verify_result(self) -> bool:
        """Returns True if the task is done."""

    def run(self, instruction: str) -> None:
        """Lets the agent do the task. Raises AssertionError if a prompt was not recorded, or if the task is not done.

        script/regenerate records the prompts again. Failed scenarios keep their recordings.
        """
        self.setup()
        with (
            open_recording(self.case / "recorded.jsonl") as model,
            self.workspace(self.root) as workspace,
            Conversation(self._build_agent(model), workspace) as conversation,
        ):
            conversation.send_message(instruction)
            state = conversation.run()
            assert state.status == "finished", f"{state.status}: {state.detail}"
            assert self.verify_result(), f"{type(self).__name__} rejects the result of {self.case.name}"

    def _build_agent(self, model: Model) -> Agent:
        llm = RecordedLLM(model="openai/recorded")
        llm._model = SamePromptModel(model, self.root)
        return Agent(llm=llm, tools=tuple(tool.name for tool in self.tools()), max_steps=20, max_usd=0.5)


class RecordedLLM(LLM):
    _model: Model = PrivateAttr()

    def build(self) -> Model:
        return self._model


class SamePromptModel(WrapperModel):
    """Sends prompts without what differs between two runs: the directories, and the seconds of a command."""

    SCRATCH = re.compile(r"/[\w/.-]*/patchwright-scratch-\w+")
    SECONDS = re.compile(r", \d+\.\d s,")

    def __init__(self, model: Model, root: Path) -> None:
        super().__init__(model)
        self._directories = {"/workspace": str(root)}

    async def reply(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> Reply:
        prompt = MESSAGES.dump_json(tuple(messages)).decode()
        if scratch := self.SCRATCH.search(prompt):
            self._directories["/scratch"] = scratch[0]
        for name, directory in self._directories.items():
            prompt = prompt.replace(directory, name)
        reply = await self._model.reply(MESSAGES.validate_json(self.SECONDS.sub(", 0.0 s,", prompt)), tools)
        calls = [
            call.model_copy(update={"arguments": self._use_directories(call.arguments)})
            for call in reply.tool_calls
        ]
        return reply.model_copy(update={"tool_calls": tuple(calls)})

    def _use_directories(self, arguments: str) -> str:
        for name, directory in self._directories.items():
            arguments = re.sub(rf"(?<![\w/.-]){name}\b", directory, arguments)
        return arguments


class GoldTest(BaseIntegrationTest):
    """Compares the files with those in `gold` after the task. They are in `workspace` before it."""

    def setup(self) -> None:
        repository = Repository(self.root)
        for path, content in read_tree(self.case / "workspace").items():
            repository.write(path, content)
        repository.git("add", "--all")
        dates = {"GIT_AUTHOR_DATE": DATE, "GIT_COMMITTER_DATE": DATE}
        repository.git("commit", "--quiet", "--message", "Add the files", **dates)

    def tools(self) -> list[Tool]:
        return [
            Tool(name=name) for name in ("run_shell", "view_file", "create_file", "replace_text", "finish")
        ]

    def verify_result(self) -> bool:
        gold, result = read_tree(self.case / "gold"), read_tree(self.root)
        for path in sorted(gold.keys() | result.keys()):
            one, two = (files.get(path, b"").decode().splitlines() for files in (gold, result))
            print(*difflib.unified_diff(one, two, f"gold/{path}", path, lineterm=""), sep="\n")
        return gold == result


def read_tree(root: Path) -> dict[str, bytes]:
    """Returns the content of every file below, by its path."""
    files = (path for path in root.rglob("*") if path.is_file())
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in files
        if not {".git", "__pycache__"} & set(path.relative_to(root).parts)
    }
