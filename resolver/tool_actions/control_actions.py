"""The actions that control a run and change nothing: think, plan, ask, propose a plan, finish and report."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from patchwright.runtime.frozen_model import FrozenModel
from patchwright.runtime.tool_action import CallDescription, CallText, PlanItem, ToolAction


class Think(ToolAction):
    """Write down a thought. It has no effect and stays in the log."""

    kind: Literal["think"] = "think"
    thought: str = Field(
        min_length=1, description="What you have understood, or what you will try next and why."
    )

    def describe(self) -> CallDescription:
        return CallDescription(
            kind="thought",
            title=f"think: {self.thought}",
            texts=(CallText("", self.thought, shown="if_long"),),
        )


class Plan(ToolAction):
    """Keep a list of tasks.

    It replaces the previous one. People see it while you work. Send it again when a point is done or changed. A point
    that is no longer needed is dropped.
    """

    kind: Literal["plan"] = "plan"
    items: tuple[PlanItem, ...] = Field(min_length=1, max_length=30, description="All points, in order.")

    def describe(self) -> CallDescription:
        done = sum(item.status == "done" for item in self.items)
        title = f"plan: {done} of {len(self.items)} done"
        return CallDescription(kind="plan", title=title, verb="planning", checklist=self.items)


class ThreadReply(FrozenModel):
    """The reply to one review thread."""

    thread: int = Field(ge=1, le=1_000, description="Number of the thread in the first message.")
    is_done: bool = Field(
        description="True if the requested change is done now; false if you only answered a question."
    )
    text: str = Field(
        min_length=1,
        max_length=2_000,
        description="What you changed for this thread, or why you changed nothing. People in the thread read it.",
    )


class Finish(ToolAction):
    """End the run, with a summary for people."""

    ends_run: ClassVar[bool] = True

    kind: Literal["finish"] = "finish"
    cause: str = Field(description="What was wrong or asked for, and where.")
    change: str = Field(description="What you changed and why, or what you found.")
    testing: str = Field(description="Commands and results, before and after.")
    to_check: tuple[str, ...] = Field(
        default=(),
        max_length=3,
        description="Only what a person has to decide or check.",
    )
    thread_replies: tuple[ThreadReply, ...] = Field(
        default=(),
        max_length=200,
        description="One reply for each waiting review thread, if the first message shows review threads.",
    )

    def describe(self) -> CallDescription:
        texts = [
            CallText("What was wrong", self.cause),
            CallText("What was changed", self.change),
            CallText("How it was checked", self.testing),
        ]
        for reply in self.thread_replies:
            status = "done" if reply.is_done else "not done"
            texts.append(CallText(f"Thread {reply.thread}, {status}", reply.text))
        return CallDescription(kind="end", title="finish", verb="finishing", texts=tuple(texts))


MAX_QUESTION = 4_000  # characters


class Ask(ToolAction):
    """End the run with a question to the maintainers. Their answer resumes the run.

    Only if two readings of the issue lead to different changes, or only these people know a fact. Call it alone.
    """

    ends_run: ClassVar[bool] = True

    kind: Literal["ask"] = "ask"
    question: str = Field(
        min_length=1,
        max_length=MAX_QUESTION,
        description="What you need to know and why, and the choices. Readers have not seen your work.",
    )

    def describe(self) -> CallDescription:
        return CallDescription(
            kind="end",
            title=f"ask: {self.question}",
            verb="asking a question",
            label=self.question,
            texts=(CallText("", self.question),),
        )


PlanStep = Annotated[str, Field(min_length=1, max_length=500)]


class ProposePlan(ToolAction):
    """Propose your plan and stop. People read the plan, and approve it or ask for changes.

    Make this call alone, once you know the cause from the code itself and can start with the first step. The
    readers have not seen what you read, so name files, functions and tests. They decide by this text alone,
    so leave out what does not matter for the decision. When they approve the plan, you do the work in this
    conversation.
    """

    ends_run: ClassVar[bool] = True

    kind: Literal["propose_plan"] = "propose_plan"
    cause: str = Field(
        min_length=1,
        max_length=2_000,
        description="What is wrong or missing, and where (`path:line`), in one to three sentences. Say whether and "
        "how you saw it happen.",
    )
    steps: tuple[PlanStep, ...] = Field(
        min_length=1,
        max_length=20,
        description="The changes, in order: one change per step, with its files. Leave out steps that only read code.",
    )
    test_plan: str = Field(
        min_length=1,
        max_length=2_000,
        description="How you will show that the change works: which test fails now and will pass, the file of this "
        "test, and what else you will run.",
    )
    risks: str = Field(
        min_length=1,
        max_length=2_000,
        description="What could break and for whom, what you could not find out, and your decisions with their "
        'alternatives. "None that I know of" is a valid answer.',
    )

    def describe(self) -> CallDescription:
        steps = "\n".join(f"{number}. {step}" for number, step in enumerate(self.steps, start=1))
        return CallDescription(
            kind="end",
            title=f"propose: {self.cause}",
            texts=(
                CallText("Cause", self.cause),
                CallText("Steps", steps),
                CallText("Test plan", self.test_plan),
                CallText("Risks", self.risks),
            ),
        )


class Report(ToolAction):
    """End your work with the answer. Only this text is passed on. Make this call alone.

    Begin with the answer, in the requested form. Then give the evidence, with file and line. Say what you
    looked at and saw, and what you did not look at. If you found only a part of the answer, report that part
    and say what is missing.
    """

    ends_run: ClassVar[bool] = True

    kind: Literal["report"] = "report"
    text: str = Field(
        min_length=1, max_length=20_000, description="The answer; only 8,000 characters of it are passed on."
    )

    def describe(self) -> CallDescription:
        return CallDescription(title=self.kind, texts=(CallText("", self.text),))
