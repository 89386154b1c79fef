"""The whole proof with every runner for real: a mend, a new test for it, and what breaks something."""

import pytest

from resolver.settings import RepoConfig
from resolver.suites.find import find_suites
from tests.resolver.proofs import Proven
from tests.runners.conftest import skip_without
from tests.runners.repositories import SAMPLES, Sample

pytestmark = pytest.mark.slow


@pytest.fixture(params=SAMPLES)
def sample(request: pytest.FixtureRequest) -> Sample:
    found = SAMPLES[request.param]
    skip_without(*found.needs)
    return found


async def test_a_mend_is_seen_and_so_is_what_breaks(proven: Proven, sample: Sample) -> None:
    code = sample.files[sample.source]
    async with proven(sample.files) as proof:
        suite = (await find_suites(proof.workspace, RepoConfig())).likely
        assert suite is not None
        mended = await proof.verdict({sample.source: code.replace("a - b", "a + b")}, suite, seconds=120)
        # Rust has tests beside its code, which are to stay.
        wrong = code.replace("    1\n", "    7\n") if sample.report == "cargo" else code.replace("1", "7")
        broken = await proof.verdict({sample.source: wrong}, suite, seconds=120)
    assert (mended.kind, mended.newly_passing) == ("fixed", (sample.bad,)), mended.reason
    assert broken.kind == "regressed" and sample.good in broken.newly_failing, broken.reason


async def test_the_tests_that_failed_cannot_be_taken_away(proven: Proven, sample: Sample) -> None:
    tests = [path for path in sample.files if path in sample.bad or "test" in path or "spec" in path]
    code = sample.files[sample.source]
    away = {
        path: None for path in tests if path != sample.source and not path.endswith((".json", ".xml", ".mod"))
    }
    async with proven(sample.files) as proof:
        suite = (await find_suites(proof.workspace, RepoConfig())).likely
        verdict = await proof.verdict({**away, sample.source: code + "\n"}, suite, seconds=120)
    assert verdict.kind == "unproven" and not verdict.newly_passing, verdict
