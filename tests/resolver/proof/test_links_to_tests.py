"""Changed files to which symbolic links of the base commit point, so that they are tests or their configuration."""

import pytest

from tests.resolver.git_repository import Repository
from tests.resolver.patch_verifier import BUG, FAILING, FIXED, VerifierFactory

pytestmark = pytest.mark.slow

WRONG = FAILING.replace("== 3", "== -1")
LINKS = {
    "test": ("tests/test_calc.py", "../suite/calc.py", {"suite/calc.py": FAILING}, {"suite/calc.py": WRONG}),
    "directory": ("tests", "suite", {"suite/test_calc.py": FAILING, "suite/data.txt": "3"}, {"suite/data.txt": "-1"}),
    "configuration": (
        "conftest.py",
        "shared/hooks.py",
        {"shared/hooks.py": "import calc\n", "tests/test_calc.py": FAILING},
        {"shared/hooks.py": "import calc\n\ncalc.add = lambda a, b: a + b\n"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", LINKS)
async def test_a_file_behind_a_link_has_the_role_of_the_link(
    repository: Repository, open_verifier: VerifierFactory, kind: str
) -> None:
    link, target, base, deceit = LINKS[kind]
    place = repository.path / link
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)
    async with open_verifier({"calc.py": BUG, **base}) as verifier:
        deceived = await verifier.verdict({"calc.py": f"{BUG}\n# touched\n", **deceit})
        honest = await verifier.verdict({"calc.py": FIXED})
    assert deceived.kind == "unproven"
    assert deceived.reverted_test_config == tuple(deceit)
    assert honest.kind == "fixed"
