"""What is done for a run before the agent's first step: the repository's set-up, and the first message."""

import asyncio
import logging
from collections.abc import Collection, Mapping

from resolver import prose
from resolver.brief import brief
from resolver.circumstances import Chosen, Connected, Prepared
from resolver.domain import Job, PullRequest, SuiteRun, Thread
from resolver.events import Started
from resolver.kit import Kit
from resolver.log import Log
from resolver.preparing.attachments import Attached, directory
from resolver.preparing.instructions import Instructions
from resolver.preparing.setup import with_dependencies
from resolver.pull.seen import PullSeen
from resolver.request import planning_prose
from resolver.request.planning import task
from resolver.secrets import Secrets
from resolver.settings.settings import RepoConfig
from resolver.suites.kind import Language
from resolver.suites.suite import Suite, Suites
from resolver.workspace import Workspace
from runtime.actions import Execute
from runtime.egress.egress import Visit
from runtime.errors import ImageUnavailable
from runtime.observations import Executed
from runtime.plugins import Plugin
from runtime.sandbox import Sandbox, Sandboxes

logger = logging.getLogger(__name__)

BASELINE_WAIT = 0.8  # seconds that the first message waits for the tests' result at base; they go on after it


def started(job: Job, thread: Thread, workspace: Workspace, source: str, branch: str, kit: Kit) -> Started:
    """The first event of a run: everything that must not change under it."""
    return Started(
        job=job,
        thread=thread,
        base=workspace.base,
        base_branch=branch,
        source=source,
        model=kit.model.name,
        sandbox=kit.sandboxes.kind,
        network=kit.sandboxes.network,
    )


async def prepared(
    job: Job, workspace: Workspace, config: RepoConfig, suites: Suites, log: Log, kit: Kit
) -> Sandboxes:
    """Sandboxes on their language's image in which the repository's own set-up has been done, if one works."""
    assert log.trajectory.started is not None
    sandboxes, chosen = await on_image(suites, kit.settings.images, kit.sandboxes)
    sandboxes, event, visits = await with_dependencies(
        workspace,
        config,
        sandboxes,
        name=f"{job.id}-setup",
        source=_whose(log.trajectory.started),
        seconds=kit.settings.setup_timeout,
    )
    if chosen is not None and chosen.problem:
        chosen = chosen.model_copy(update={"problem": kit.secrets.mask(chosen.problem)})
    if event is not None or chosen is not None:
        event = event or Prepared(commands=(), warm=True, seconds=0)
        problem = kit.secrets.mask(event.problem) if event.problem else None
        await log.append(event.model_copy(update={"problem": problem, "chosen": chosen}))
    if visits:
        await log.append(Connected(visits=masked_visits(visits, kit.secrets)))
    return sandboxes


async def on_image(
    suites: Suites, images: Mapping[Language, str], usual: Sandboxes
) -> tuple[Sandboxes, Chosen | None]:
    """Sandboxes on the image for the tests' language, or the usual ones where that cannot be had; and what was chosen.

    Raises EngineUnavailable.
    """
    language = suites.likely.language if suites.likely else None
    if language is None or (image := images.get(language)) is None:
        return usual, None
    try:
        sandboxes = await usual.on(image)
    except ImageUnavailable as exc:
        logger.info("image left out", extra={"image": image, "error": str(exc)[:500]})
        return usual, Chosen(language=language, image=image, problem=str(exc))
    return sandboxes, Chosen(language=language, image=image) if sandboxes is not usual else None


def _whose(started: Started) -> str:
    """Whose dependencies they are: what a stranger's fork installs must not be found by runs on anything else."""
    thread = started.thread
    if isinstance(thread, PullRequest) and not thread.same_repository:
        return f"{started.source}#{thread.head_repo}"
    return started.source


def masked_visits(visits: tuple[Visit, ...], secrets: Secrets) -> tuple[Visit, ...]:
    """A name that was asked for may hold what must not be told."""
    return tuple(visit.model_copy(update={"host": secrets.mask(visit.host)}) for visit in visits)


async def first_message(
    job: Job,
    workspace: Workspace,
    sandbox: Sandbox,
    log: Log,
    suite: Suite | None,
    before: asyncio.Task[SuiteRun | None],
    told: Instructions,
    attached: Attached,
    pull: PullSeen | None = None,
    plugins: Collection[Plugin] = (),
) -> str:
    """What is asked, and what was found out before the agent's first step."""
    done, _ = await asyncio.wait({before}, timeout=BASELINE_WAIT)
    assert log.trajectory.started is not None
    now, asked = task(log.trajectory), job.asked
    return prose.brief(
        brief(
            log.trajectory.started.thread,
            asked.text if now == "work" else asked.words,
            task=now,
            who=planning_prose.who(job),
            root=sandbox.root,
            kernel="kernel" in plugins,
            base=workspace.base,
            files=await workspace.files(),
            machine=await _machine(sandbox),
            suite=suite,
            before=before.result() if done else None,
            prepared=log.trajectory.prepared,
            instructions=told,
            attached=attached,
            attachments=directory(sandbox),
            pull=pull,
        )
    )


_MACHINE = r"""
for program in python3 node go cargo java ruby make; do
    command -v "$program" >/dev/null || continue
    case $program in
        go) printf 'go: %s\n' "$(go version 2>&1 | head -n 1)" ;;
        java) printf 'java: %s\n' "$(java -version 2>&1 | head -n 1)" ;;
        *) printf '%s: %s\n' "$program" "$("$program" --version 2>&1 | head -n 1)" ;;
    esac
done
"""


async def _machine(sandbox: Sandbox) -> str:
    seen = await sandbox.act(Execute(argv=("sh", "-c", _MACHINE), timeout=20))
    return seen.stdout.decode(errors="replace").strip() if isinstance(seen, Executed) else ""
