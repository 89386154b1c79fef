"""Small repositories with a bug, one for each runner: `add` subtracts."""

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Sample:
    """A repository and the expected results of its tests."""

    files: dict[str, str]
    source: str
    """The file with the bug: `a - b` instead of `a + b`."""
    needs: tuple[str, ...]
    """Required programs."""
    report: str
    command: str
    good: str
    bad: str
    others: dict[str, str]
    """Outcome of every other test."""
    alone: str | None = None
    """The test file or test to select; None: the runner cannot select tests."""
    left: frozenset[str] = frozenset()
    """The tests that then run."""


COMMON_JS = "exports.add = (a, b) => a - b;\nexports.one = () => 1;\n"


def _package(**scripts: str) -> str:
    return json.dumps({"name": "calc", "private": True, "scripts": scripts})


def _javascript(runner: str, test: str, content: str, script: str, command: str, **more: Any) -> Sample:
    return Sample(
        files={"calc.js": COMMON_JS, "package.json": _package(test=script), test: content},
        source="calc.js",
        needs=("node", "npm", *(() if runner == "node" else (f"npm:{runner}",))),
        report=runner,
        command=command,
        **more,
    )


SAMPLES = {
    "pytest": Sample(
        files={
            "calc.py": "def add(a, b):\n    return a - b\n\n\ndef one():\n    return 1\n",
            "tests/test_calc.py": "from calc import add, one\n\n\ndef test_one():\n    assert one() == 1\n\n\n"
            "def test_add():\n    assert add(1, 2) == 3\n",
            "tests/test_more.py": "import pytest\n\n\n@pytest.mark.skip\ndef test_later():\n    pass\n",
        },
        source="calc.py",
        needs=("python3",),
        report="pytest",
        command="python3 -m pytest",
        good="tests/test_calc.py::test_one",
        bad="tests/test_calc.py::test_add",
        others={"tests/test_more.py::test_later": "skipped"},
        alone="tests/test_calc.py::test_add",
        left=frozenset({"tests/test_calc.py::test_add"}),
    ),
    "unittest": Sample(
        files={
            "calc.py": "def add(a, b):\n    return a - b\n\n\ndef one():\n    return 1\n",
            "tests/test_calc.py": "import unittest\nfrom calc import add, one\n\n\nclass Calc(unittest.TestCase):\n"
            "    def test_one(self):\n        self.assertEqual(one(), 1)\n\n"
            "    def test_add(self):\n        for a in (1, 2):\n            with self.subTest(a=a):\n"
            "                self.assertEqual(add(a, 2), a + 2)\n\n"
            "    @unittest.skip('later')\n    def test_later(self):\n        pass\n",
            "tests/test_broken.py": "import unittest, nothing_like_it\n",
            "tests/test_set_up.py": "import unittest\n\n\nclass Up(unittest.TestCase):\n    @classmethod\n"
            "    def setUpClass(cls):\n        1 / 0\n\n    def test_never(self):\n        pass\n",
        },
        source="calc.py",
        needs=("python3",),
        report="unittest",
        command="python3 -m unittest discover -s tests",
        good="tests/test_calc.py::Calc::test_one",
        bad="tests/test_calc.py::Calc::test_add",
        others={
            "tests/test_calc.py::Calc::test_later": "skipped",
            "tests/test_broken.py": "error",
            "setUpClass (test_set_up.Up)": "error",
        },
        alone="tests/test_calc.py::Calc::test_add",
        left=frozenset({"tests/test_calc.py::Calc::test_add"}),
    ),
    "jest": _javascript(
        "jest",
        "calc.test.js",
        "const { add, one } = require('./calc.js');\ntest('one', () => expect(one()).toBe(1));\n"
        "describe('calc', () => {\n  test('adds', () => expect(add(1, 2)).toBe(3));\n  test.skip('later', () => {});\n"
        "  test.todo('sometime');\n});\n",
        "eslint --version || true; jest --ci",
        "npm test",
        good="calc.test.js::one",
        bad="calc.test.js::calc adds",
        others={"calc.test.js::calc later": "skipped", "calc.test.js::calc sometime": "skipped"},
        alone="calc.test.js",
        left=frozenset(
            {f"calc.test.js::{name}" for name in ("one", "calc adds", "calc later", "calc sometime")}
        ),
    ),
    "vitest": _javascript(
        "vitest",
        "src/calc.test.mjs",
        "import { describe, expect, test } from 'vitest';\nimport { add, one } from '../calc.js';\n"
        "test('one', () => expect(one()).toBe(1));\n"
        "describe('calc', () => {\n  test('adds', () => expect(add(1, 2)).toBe(3));\n"
        "  test.skip('later', () => {});\n});\n",
        "vitest",
        "npm test",
        good="src/calc.test.mjs::one",
        bad="src/calc.test.mjs::calc adds",
        others={"src/calc.test.mjs::calc later": "skipped"},
    ),
    "mocha": _javascript(
        "mocha",
        "test/calc.js",
        "const assert = require('assert');\nconst { add, one } = require('../calc.js');\n"
        "it('one', () => assert.equal(one(), 1));\n"
        "describe('calc', () => {\n  it('adds', () => assert.equal(add(1, 2), 3));\n  it('later');\n"
        "  describe('hooked', () => { before(() => { throw new Error('no'); }); it('never', () => {}); });\n});\n",
        "npm run unit",
        "npm run unit",
        good="test/calc.js::one",
        bad="test/calc.js::calc adds",
        others={
            "test/calc.js::calc later": "skipped",
            'test/calc.js::calc hooked "before all" hook for "never"': "failed",
        },
    ),
    "tap": _javascript(
        "tap",
        "test/calc.js",
        "const t = require('tap');\nconst { add, one } = require('../calc.js');\nt.equal(one(), 1, 'one is 1');\n"
        "t.test('calc', (t) => {\n  t.equal(add(1, 2), 3, 'adds');\n  t.skip('later');\n  t.end();\n});\n",
        "tap --disable-coverage",
        "npm test",
        good="test/calc.js::one is 1",
        bad="test/calc.js::calc",
        others={"test/calc.js::calc > later": "skipped", "test/broken.js": "error"},
    ),
    "node": _javascript(
        "node",
        "test/calc.test.js",
        "const assert = require('node:assert');\nconst { describe, it, test } = require('node:test');\n"
        "const { add, one } = require('../calc.js');\ntest('one', () => assert.equal(one(), 1));\n"
        "describe('calc', () => {\n  it('adds', () => assert.equal(add(1, 2), 3));\n"
        "  it.skip('later', () => {});\n});\n",
        "node --test",
        "node --test",
        good="test/calc.test.js::one",
        bad="test/calc.test.js::calc > adds",
        others={"test/calc.test.js::calc > later": "skipped", "test/broken.test.js": "error"},
        alone="test/calc.test.js",
        left=frozenset({f"test/calc.test.js::{name}" for name in ("one", "calc > adds", "calc > later")}),
    ),
    "go": Sample(
        files={
            "go.mod": "module example.org/calc\n\ngo 1.19\n",
            "calc.go": "package calc\n\nfunc Add(a, b int) int { return a - b }\n\nfunc One() int { return 1 }\n",
            "calc_test.go": 'package calc\n\nimport "testing"\n\nfunc TestOne(t *testing.T) {\n\tif One() != 1 {\n'
            '\t\tt.Fatal(One())\n\t}\n}\n\nfunc TestAdd(t *testing.T) {\n\tt.Run("small", func(t *testing.T) {\n'
            "\t\tif Add(1, 2) != 3 {\n\t\t\tt.Fatal(Add(1, 2))\n\t\t}\n\t})\n}\n\n"
            'func TestLater(t *testing.T) { t.Skip("later") }\n',
            "broken/a_test.go": "package broken\n\nfunc TestNothing(t *testing.T) {}\n",
        },
        source="calc.go",
        needs=("go",),
        report="go",
        command="go test ./...",
        good="example.org/calc::TestOne",
        bad="example.org/calc::TestAdd/small",
        others={"example.org/calc::TestLater": "skipped", "example.org/calc/broken": "error"},
        alone="example.org/calc::TestAdd/small",
        left=frozenset({"example.org/calc::TestAdd/small"}),
    ),
    "cargo": Sample(
        files={
            "Cargo.toml": '[package]\nname = "calc"\nversion = "0.1.0"\nedition = "2021"\n',
            "src/lib.rs": "/// ```\n/// assert_eq!(calc::one(), 1);\n/// ```\npub fn one() -> i32 {\n    1\n}\n\n"
            "pub fn add(a: i32, b: i32) -> i32 {\n    a - b\n}\n\n#[cfg(test)]\nmod tests {\n    use super::*;\n\n"
            "    #[test]\n    fn one_is_one() {\n        assert_eq!(one(), 1);\n    }\n\n    #[test]\n    #[ignore]\n"
            "    fn later() {}\n}\n",
            "tests/adding.rs": '#[test]\nfn adds() {\n    println!("test nothing ... ok");\n'
            "    assert_eq!(calc::add(1, 2), 3);\n}\n",
        },
        source="src/lib.rs",
        needs=("cargo", "cc"),
        report="cargo",
        command="cargo test",
        good="src/lib.rs::tests::one_is_one",
        bad="tests/adding.rs::adds",
        others={"src/lib.rs::tests::later": "skipped", "doc calc::src/lib.rs - one (line 1)": "passed"},
        alone="tests/adding.rs",
        left=frozenset({"tests/adding.rs::adds"}),
    ),
    "maven": Sample(
        files={
            ".mvn/maven.config": "-Dmaven.repo.local=/usr/share/maven-repo\n",
            "pom.xml": """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>org.example</groupId><artifactId>calc</artifactId><version>1</version>
  <properties>
    <maven.compiler.source>17</maven.compiler.source><maven.compiler.target>17</maven.compiler.target>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
  <dependencies>
    <dependency>
      <groupId>junit</groupId><artifactId>junit</artifactId><version>4.x</version><scope>test</scope>
    </dependency>
  </dependencies>
  <build><plugins>
    <plugin><artifactId>maven-resources-plugin</artifactId><version>3.3.0</version></plugin>
    <plugin><artifactId>maven-compiler-plugin</artifactId><version>3.10.1</version></plugin>
    <plugin><artifactId>maven-surefire-plugin</artifactId><version>2.22.3</version></plugin>
  </plugins></build>
</project>
""",
            "src/main/java/org/example/Calc.java": "package org.example;\n\npublic class Calc {\n"
            "    public static int add(int a, int b) { return a - b; }\n    public static int one() { return 1; }\n}\n",
            "src/test/java/org/example/CalcTest.java": "package org.example;\n\nimport static org.junit.Assert.*;\n"
            "import org.junit.*;\n\npublic class CalcTest {\n"
            "    @Test public void one() { assertEquals(1, Calc.one()); }\n"
            "    @Test public void adds() { assertEquals(3, Calc.add(1, 2)); }\n"
            "    @Test @Ignore public void later() {}\n}\n",
            "target/surefire-reports/TEST-planted.xml": "<testsuite><testcase name='planted'/></testsuite>",
        },
        source="src/main/java/org/example/Calc.java",
        needs=("mvn", "javac"),
        report="maven",
        command="mvn test",
        good="org.example.CalcTest::one",
        bad="org.example.CalcTest::adds",
        others={"org.example.CalcTest::later": "skipped"},
        alone="org.example.CalcTest::adds",
        left=frozenset({"org.example.CalcTest::adds"}),
    ),
    "rspec": Sample(
        files={
            "lib/calc.rb": "def add(a, b)\n  a - b\nend\n\ndef one\n  1\nend\n",
            "spec/calc_spec.rb": 'require "calc"\n\nRSpec.describe "calc" do\n'
            '  it("has one") { expect(one).to eq(1) }\n'
            '  it("adds") { expect(add(1, 2)).to eq(3) }\n  xit("waits") { }\nend\n',
        },
        source="lib/calc.rb",
        needs=("rspec",),
        report="rspec",
        command="rspec",
        good="spec/calc_spec.rb::calc has one",
        bad="spec/calc_spec.rb::calc adds",
        others={"spec/calc_spec.rb::calc waits": "skipped"},
        alone="spec/calc_spec.rb::calc adds",
        left=frozenset({"spec/calc_spec.rb::calc adds"}),
    ),
    "minitest": Sample(
        files={
            "Rakefile": 'require "rake/testtask"\n\nRake::TestTask.new do |task|\n'
            '  task.pattern = "test/**/*_test.rb"\nend\n',
            "lib/calc.rb": "def add(a, b)\n  a - b\nend\n\ndef one\n  1\nend\n",
            "test/calc_test.rb": 'require "minitest/autorun"\nrequire "calc"\n\nclass CalcTest < Minitest::Test\n'
            "  def test_one\n    assert_equal 1, one\n  end\n\n  def test_add\n    assert_equal 3, add(1, 2)\n  end\n\n"
            '  def test_later\n    skip "later"\n  end\n\n  def test_broken\n    raise "no"\n  end\nend\n',
        },
        source="lib/calc.rb",
        needs=("ruby", "rake"),
        report="minitest",
        command="rake test",
        good="test/calc_test.rb::CalcTest#test_one",
        bad="test/calc_test.rb::CalcTest#test_add",
        others={
            "test/calc_test.rb::CalcTest#test_later": "skipped",
            "test/calc_test.rb::CalcTest#test_broken": "error",
        },
    ),
}
SAMPLES["mocha"].files["package.json"] = _package(test="npm run unit", unit="mocha")
SAMPLES["tap"].files["test/broken.js"] = "require('./nothing');\n"
SAMPLES["node"].files["test/broken.test.js"] = "require('./nothing');\n"
