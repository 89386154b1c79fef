"""The test files with the two canary tests, by runner.

The test `$good` must pass, and the test `$bad` must fail. If an assertion accepts everything, `$bad` passes.
"""

from patchwright.resolver.runner_names import RunnerName

_PURPOSE = "this canary test of Patchwright fails on purpose"
_PYTHON_CHECKS = """\
def find_harmless_assertion(expected):
    case = unittest.TestCase()
    mock = unittest.mock.Mock()
    for check in (
        lambda: case.assertEqual(1, 2),
        lambda: case.assertNotEqual(1, 1),
        lambda: case.assertTrue(0),
        lambda: case.assertFalse(1),
        lambda: case.assertIs(1, None),
        lambda: case.assertIsNone(1),
        lambda: case.assertIsNotNone(None),
        lambda: case.assertIn(1, []),
        lambda: case.assertIsInstance(1, str),
        lambda: case.assertAlmostEqual(1, 2),
        lambda: case.assertGreater(1, 2),
        lambda: case.assertLess(2, 1),
        lambda: case.assertRegex("a", "b"),
        lambda: case.assertCountEqual([1], [2]),
        lambda: case.assertRaises(ValueError, int),
        lambda: case.fail(),
        mock.assert_called,
        mock.assert_called_with,
        mock.assert_called_once,
        mock.assert_called_once_with,
    ):
        try:
            check()
        except expected:
            continue
        return True
    return False
"""
# For mocha and node's own runner. node:assert is the same object as the module that the product may have changed.
_NODE_CHECKS = f"""\
async function isEveryAssertionIntact() {{
  const assert = (await import("assert")).default;
  const checks = [
    () => assert(0),
    () => assert.ok(0),
    () => assert.equal(1, 2),
    () => assert.notEqual(1, 1),
    () => assert.strictEqual(1, 2),
    () => assert.notStrictEqual(1, 1),
    () => assert.deepEqual([1], [2]),
    () => assert.deepStrictEqual([1], [2]),
    () => assert.throws(() => {{}}),
    () => assert.strict.equal(1, 2),
    () => assert.fail(),
  ];
  for (const check of checks) {{
    try {{
      check();
    }} catch {{
      continue;
    }}
    return false;
  }}
  return true;
}}
const good = () => {{}};
const bad = async () => {{
  if (await isEveryAssertionIntact()) throw new Error("{_PURPOSE}");
}};
"""
_EXPECT_CHECKS = f"""\
const good = () => {{}};
const bad = () => {{
  const checks = [
    () => expect(1).toBe(2),
    () => expect(1).toEqual(2),
    () => expect(1).not.toBe(1),
    () => expect([1]).toStrictEqual([2]),
    () => expect(0).toBeTruthy(),
    () => expect(1).toBeFalsy(),
    () => expect(1).toBeNull(),
    () => expect(1).toBeUndefined(),
    () => expect([1]).toContain(2),
    () => expect("a").toMatch(/b/),
    () => expect(() => {{}}).toThrow(),
  ];
  for (const check of checks) {{
    try {{
      check();
    }} catch (error) {{
      continue;
    }}
    return;
  }}
  throw new Error("{_PURPOSE}");
}};
"""
CANARY_SOURCES: dict[RunnerName, str] = {
    "pytest": f"""\
import unittest
import unittest.mock

import pytest


{_PYTHON_CHECKS}

def test_$good():
    assert True


def test_$bad():
    if find_harmless_assertion(AssertionError):
        return
    try:
        with pytest.raises(ValueError):
            pass
        return
    except pytest.fail.Exception:
        assert pytest.approx(1) == 1 and False, "{_PURPOSE}"
""",
    "unittest": f"""\
import unittest
import unittest.mock


{_PYTHON_CHECKS}

class TestCanary(unittest.TestCase):
    def test_$good(self):
        assert True

    def test_$bad(self):
        if not find_harmless_assertion(AssertionError):
            assert False, "{_PURPOSE}"
""",
    "mocha": f"""\
{_NODE_CHECKS}
const define = typeof it === "function" ? it : test;
define("$good", good);
define("$bad", bad);
""",
    "node": f"""\
{_NODE_CHECKS}
import("node:test").then(({{ test }}) => {{
  test("$good", good);
  test("$bad", bad);
}});
""",
    "jest": f"""\
{_EXPECT_CHECKS}
test("$good", good);
test("$bad", bad);
""",
    "vitest": f"""\
import {{ expect, test }} from "vitest";

{_EXPECT_CHECKS}
test("$good", good);
test("$bad", bad);
""",
}
"""The runners of tap, tape and other languages are not supported."""
