"""Product code in directories that are named like tests."""

import pytest

from patchwright.resolver.suites.product_files import find_product_files
from tests.resolver.patch_verifier import BUG, FAILING, FIXED, VerifierFactory

CLIENT = {"web/__init__.py": "", "web/test/__init__.py": "", "web/test/client.py": ""}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "changed", "expected"),
    [
        (CLIENT | {"web/run.py": "from web.test.client import Client\n"}, "web/test/client.py", True),
        (CLIENT | {"web/run.py": "import web.test.client\n"}, "web/test/client.py", True),
        (CLIENT | {"web/run.py": "from .test import (\n    client,\n)\n"}, "web/test/client.py", True),
        (CLIENT | {"web/core/run.py": "from ..test.client import *\n"}, "web/test/client.py", True),
        (CLIENT | {"web/run.py": "from web import test\n"}, "web/test/__init__.py", True),
        # through another file of the directory
        (
            CLIENT
            | {"web/run.py": "from web.test import x\n", "web/test/__init__.py": "from .client import x\n"},
            "web/test/client.py",
            True,
        ),
        # A new file belongs to the product, but not one that replaces a module.
        (CLIENT | {"web/run.py": "from web.test import client\n"}, "web/test/new.py", True),
        (CLIENT | {"web/run.py": "from web.test import client\n"}, "web/test/client/__init__.py", False),
        ({"lib/a.js": "require('./spec/runner')\n", "lib/spec/runner.js": ""}, "lib/spec/runner.js", True),
        ({"lib/a.js": "import x from './spec';\n", "lib/spec/index.js": ""}, "lib/spec/index.js", True),
        ({"lib/a.rb": "require 'spec/runner'\n", "lib/spec/runner.rb": ""}, "lib/spec/runner.rb", True),
        # Nothing imports it, or only a test or another name does.
        (CLIENT | {"web/run.py": "from web.test import x\n"}, "web/test/client.py", False),
        (CLIENT | {"web/run.py": "client = 'test'\n"}, "web/test/client.py", False),
        (CLIENT | {"web/test_run.py": "from web.test import client\n"}, "web/test/client.py", False),
        (CLIENT | {"web/run.py": "from contest.client import x\n"}, "web/test/client.py", False),
        (CLIENT | {"web/run.py": "from . import client\n", "web/client.py": ""}, "web/test/client.py", False),
        (CLIENT | {"run.py": "from web.test import client\n"}, "web/test/client.py", False),
        ({"run.py": "from test.client import x\n", "test/client.py": ""}, "test/client.py", False),
        # A script next to the tests may run them.
        (
            CLIENT | {"web/run.py": "from web.test import client\n", "web/setup.py": ""},
            "web/test/client.py",
            False,
        ),
        # Tests and their configuration never belong to the product.
        (CLIENT | {"web/run.py": "from web.test import test_a\n"}, "web/test/test_a.py", False),
        (CLIENT | {"web/run.py": "from web.test import conftest\n"}, "web/test/conftest.py", False),
    ],
)
async def test_what_modules_of_the_product_import_belongs_to_it(
    files: dict[str, str | bytes], changed: str, expected: bool, open_verifier: VerifierFactory
) -> None:
    async with open_verifier({**files}) as verifier:
        patch = await verifier.patch({changed: "x = 1\n"})
        found = await find_product_files(verifier.workspace, await verifier.workspace.list_changes(patch))
    assert found == (frozenset({changed}) if expected else frozenset())


async def test_tests_elsewhere_show_a_fix_in_such_a_directory(open_verifier: VerifierFactory) -> None:
    files = CLIENT | {
        "web/__init__.py": "from web.test.client import add\n",
        "web/test/client.py": BUG,
        "tests/test_web.py": FAILING.replace("calc", "web.test.client"),
    }
    async with open_verifier({**files}) as verifier:
        verdict = await verifier.verdict({"web/test/client.py": FIXED})
    assert (verdict.kind, verdict.conditions) == ("fixed", ())
