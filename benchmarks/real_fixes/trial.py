"""One trial: `patchwright resolve --repo` on the old release, with a model that applies one patch."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from benchmarks.real_fixes.patches import Tree
from patchwright.demo.recorded_model import RecordedModel, RecordedTurn
from patchwright.evaluation.release_pairs import Files, Pair
from patchwright.resolver.tool_actions.control_actions import Finish
from patchwright.runtime.actions import RunShell

TIMEOUT = 3600  # seconds for one trial
DATE = "2026-01-01T00:00:00Z"
ONE_VERDICT = {"PATCHWRIGHT_SANDBOX_FEATURES": "none", "PATCHWRIGHT_MAX_REPAIRS": "0"}
"""Settings of a trial: the first verdict is the one that counts."""
FIX_KINDS = ("fixed", "conditional")
DONE = Finish(cause="See the change.", change="As upstream did it.", testing="The repository's own tests.")


class TrialResult(BaseModel):
    """The verdict on one patch of a pair."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pair: str
    patch: str
    kind: str
    """Kind of the verdict; `none` if there is none."""
    is_right: bool
    reason: str
    seconds: float
    outcome: dict[str, object]
    """What `patchwright resolve --json` printed, without the patch."""


async def run_trial(pair: Pair, patch: str, old: Files, patched: Tree, data: Path) -> TrialResult:
    """Runs one trial. `data` is the data directory. The trials of a pair share the setup of its sandbox, because they
    all have the repository in the same place.
    """
    directory = data / "trial"
    shutil.rmtree(directory, ignore_errors=True)
    try:
        tree = directory / pair.name
        commit(tree, old, pair)
        diff = _diff(tree, old, patched)
        issue = directory / "issue.md"
        issue.write_text(f"# Fix what is wrong in {pair.name} {pair.old.version}\n\nApply the change.\n")
        apply = (
            f"git apply --whitespace=nowarn <<'END-OF-PATCH'\n{diff}END-OF-PATCH\ngit status --short | head"
        )
        turns = [RecordedTurn("Apply the change.", RunShell(command=apply))]
        turns += [RecordedTurn("Done.", DONE)] * 8  # it may be sent back
        started_at = time.monotonic()
        async with RecordedModel(turns) as model:
            outcome = await resolve(tree, issue, data, model.base_url, ONE_VERDICT)
        seconds = round(time.monotonic() - started_at, 1)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    kind = str(outcome.get("verdict") or "none")
    is_right = kind in pair.verdicts if patch == "upstream" else kind not in FIX_KINDS
    return TrialResult(
        pair=f"{pair.registry}:{pair.name}",
        patch=patch,
        kind=kind,
        is_right=is_right,
        reason=str(outcome.get("reason") or outcome.get("error") or ""),
        seconds=seconds,
        outcome={name: value for name, value in outcome.items() if name != "patch"},
    )


async def resolve(
    tree: Path, issue: Path, data: Path, base_url: str, settings: Mapping[str, str]
) -> dict[str, object]:
    """Runs `patchwright resolve` with a recorded model. Returns what it printed, or an `error`."""
    environment = {name: value for name, value in os.environ.items() if name != "PATCHWRIGHT_MODEL"} | {
        "PATCHWRIGHT_DATA": str(data),
        "PATCHWRIGHT_MODEL": "openai/scripted",
        "PATCHWRIGHT_MODEL_API_KEY": "none",
        "PATCHWRIGHT_MODEL_BASE_URL": base_url,
        "PATCHWRIGHT_SANDBOX": "docker",
        **settings,
    }
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "patchwright",
            "resolve",
            "--repo",
            str(tree),
            "--issue",
            str(issue),
            "--json",
        ),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    try:
        async with asyncio.timeout(TIMEOUT):
            out, error = await process.communicate()
    except TimeoutError:
        process.terminate()
        await process.communicate()
        return {"error": f"the trial did not end within {TIMEOUT} s"}
    try:
        outcome: dict[str, object] = json.loads(out)
    except ValueError:
        return {"error": error.decode(errors="replace")[-2000:] or f"exit code {process.returncode}"}
    return outcome


def commit(tree: Path, files: Files, pair: Pair) -> None:
    tree.mkdir(parents=True)
    _write(tree, files)
    identity = ("-c", "user.name=Upstream", "-c", "user.email=upstream@example.org")
    for arguments in (
        ("init", "--quiet", "--initial-branch=main"),
        ("add", "--all", "--force"),
        (*identity, "commit", "--quiet", "-m", pair.old.version),
        (*identity, "tag", "-a", f"v{pair.old.version}", "-m", pair.old.version),
    ):
        # With the same dates, the commit has the same name in all trials of a pair, so they share its setup.
        dates = {"GIT_AUTHOR_DATE": DATE, "GIT_COMMITTER_DATE": DATE}
        subprocess.run(["git", "-C", str(tree), *arguments], env=os.environ | dates, check=True)


def _diff(tree: Path, old: Files, patched: Tree) -> str:
    """Returns the difference between the commit and the patched files, and restores the commit."""

    def git(*arguments: str) -> bytes:
        return subprocess.run(["git", "-C", str(tree), *arguments], capture_output=True, check=True).stdout

    for path in old.keys() - patched.keys():
        (tree / path).unlink()
    _write(tree, {path: text for path, text in patched.items() if old.get(path) != text})
    git("add", "--all", "--force")
    diff = git("diff", "--cached", "--binary", "--full-index").decode()
    git("reset", "--quiet", "--hard")
    git("clean", "-qfdx")
    return diff


def _write(tree: Path, files: Files) -> None:
    for path, text in files.items():
        target = tree / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text)
