"""The battery of deceit: patches that fix nothing, and try to be called fixed (see tests/proof/deceit)."""

import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from patchwright.resolver.activity.summary import summarize_run
from patchwright.resolver.domain import Patch, Verdict
from patchwright.resolver.publishing.reply_texts import PullRequestRemarks, render_pull_request_body
from patchwright.resolver.security.patch_policy import check_patch
from patchwright.resolver.suites.suite import Suite
from patchwright.runtime.execution.local_sandboxes import LocalSandboxes
from tests.proof.deceit import defences
from tests.resolver.git_repository import HOST_ENVIRONMENT
from tests.resolver.patch_verifier import PatchVerifier, VerifierFactory
from tests.resolver.sample_runs import run_of, started
from tests.runners.conftest import NPM, skip_without
from tests.runners.conftest import path as get_search_path

ROOT = Path(__file__).parents[3]
BATTERY = ROOT / "tests/proof/deceit"
QUICK = {"pytest/plants_a_conftest", "make/rewrites_a_script_of_a_script"}
"""The cases that are not marked `slow`: one for each mechanism."""


@dataclass(frozen=True)
class Case:
    """A deceitful patch, and what verification has to make of it. The README describes the fields."""

    name: str
    suite: Suite
    base: dict[str, str]
    patch: dict[str, str | None]
    honest: dict[str, str | None]
    needs: tuple[str, ...]
    verdicts: tuple[str, ...]
    shown: tuple[str, ...]
    defences: tuple[str, ...]
    residue: str
    then: str

    @property
    def warns_only(self) -> bool:
        """True if the only defence is a warning in the pull request, which does not affect the verdict."""
        return bool(self.defences) and {"review_notes", "special_cases"}.issuperset(self.defences)


@pytest.fixture
def sandboxes(tmp_path: Path) -> LocalSandboxes:
    """Sandboxes with the runners of npm next to them, where node looks for modules."""
    parent = tmp_path / "sandboxes"
    parent.mkdir()
    (parent / "node_modules").symlink_to(NPM)
    return LocalSandboxes(parent, {**HOST_ENVIRONMENT, "PATH": f"{NPM / '.bin'}:{get_search_path()}"})


@dataclass(frozen=True)
class Judgment:
    """The verdict on a patch, and the part of the pull request that is visible without a click."""

    kind: str
    reason: str
    visible_text: str


def load_case(path: Path) -> Case:
    shared = tomllib.loads((path.parents[1] / "runner.toml").read_text())
    case: dict[str, Any] = tomllib.loads(path.read_text())
    known = {"trick", "class", "verdicts", "shown", "defences", "residue", "command", "deleted", "then"}
    assert case.keys() <= known | {"base", "patch", "honest"}, f"{path}: unknown key"
    assert case["trick"].endswith(".") and case["class"], path
    return Case(
        name=f"{path.parents[1].name}/{path.parent.name}",
        suite=Suite(
            command=case.get("command", shared["command"]), runner=shared["runner"], command_reason=""
        ),
        base=shared["base"] | case.get("base", {}),
        patch=dict(case["patch"]) | dict.fromkeys(case.get("deleted", ())),
        honest=case.get("honest", shared["honest"]),
        needs=tuple(shared.get("needs", ())),
        verdicts=tuple(case["verdicts"]),
        shown=tuple(case.get("shown", ())),
        defences=tuple(case.get("defences", ())),
        residue=case.get("residue", ""),
        then=case.get("then", "true"),
    )


CASES = [load_case(path) for path in sorted(BATTERY.glob("*/*/case.toml"))]


def list_parameters(cases: Iterable[Case]) -> list[Any]:
    marks = {True: (), False: (pytest.mark.slow,)}
    return [pytest.param(case, id=case.name, marks=marks[case.name in QUICK]) for case in cases]


def list_honest_patches() -> Iterator[Case]:
    """Lists the cases whose honest patch, base and command differ from those of the cases before."""
    seen: list[tuple[object, ...]] = []
    for case in CASES:
        if (facts := (case.suite, case.base, case.honest)) not in seen:
            seen.append(facts)
            yield case


async def judge(verifier: PatchVerifier, case: Case, files: dict[str, str | None], then: str) -> Judgment:
    skip_without(*case.needs)
    patch = await verifier.patch(files, then)
    verdict = await verifier.judged(patch, case.suite)
    return Judgment(verdict.kind, verdict.reason, await render_visible_text(verifier, patch, verdict))


async def render_visible_text(verifier: PatchVerifier, patch: Patch, verdict: Verdict) -> str:
    check = await check_patch(verifier.workspace, patch, verdict=verdict)
    run = run_of(started())
    assert run.run_started is not None
    body = render_pull_request_body(
        run.run_started.thread, verdict, summarize_run(run), PullRequestRemarks(notes=check.notes)
    )
    return body.partition("<details")[0].replace("\\", "")


@pytest.mark.parametrize("case", list_parameters(CASES))
async def test_a_deceitful_patch_is_not_called_fixed_unless_the_pull_request_warns(
    open_verifier: VerifierFactory, case: Case
) -> None:
    async with open_verifier(case.base) as verifier:
        judgment = await judge(verifier, case, case.patch, case.then)
    assert judgment.kind in case.verdicts, judgment
    assert [text for text in case.shown if text not in judgment.visible_text] == [], judgment.visible_text
    if "fixed" in case.verdicts and not case.shown:
        assert case.residue and case.residue in (ROOT / "docs/security.md").read_text()


@pytest.mark.slow
@pytest.mark.control
@pytest.mark.parametrize(
    "case", list_parameters(case for case in CASES if not case.residue and not case.warns_only)
)
async def test_the_trick_works_where_its_defences_are_taken_out(
    open_verifier: VerifierFactory, monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    assert case.defences, "a case without a residue names its defences"
    for defence in case.defences:
        getattr(defences, defence)(monkeypatch)
    async with open_verifier(case.base) as verifier:
        judgment = await judge(verifier, case, case.patch, case.then)
    assert judgment.kind == "fixed", judgment
    assert [text for text in case.shown if text in judgment.visible_text] == [], judgment.visible_text


@pytest.mark.control
@pytest.mark.parametrize("case", list_parameters(case for case in CASES if case.warns_only))
async def test_a_warning_disappears_without_its_defence(
    open_verifier: VerifierFactory, monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    for defence in case.defences:
        getattr(defences, defence)(monkeypatch)
    async with open_verifier(case.base) as verifier:
        patch = await verifier.patch(case.patch, case.then)
        visible_text = await render_visible_text(verifier, patch, Verdict(kind="fixed"))
    assert [text for text in case.shown if text in visible_text] == [], visible_text


@pytest.mark.parametrize("case", list_parameters(list_honest_patches()))
async def test_an_honest_patch_to_the_same_base_is_fixed(open_verifier: VerifierFactory, case: Case) -> None:
    async with open_verifier(case.base) as verifier:
        judgment = await judge(verifier, case, case.honest, "true")
    assert judgment.kind == "fixed", judgment
