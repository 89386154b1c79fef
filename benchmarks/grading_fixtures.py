"""Tiny repositories in the format of SWE-bench: three functions in each language, of which one has a bug.

A test runner has three instances, one for each function. The names of the tests are those that SWE-bench's parser of
this runner gives them. For example, pytest's parser cuts `test_add[one two]` at the space.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Fixture:
    """A repository whose three functions `add`, `clamp` and `last` are correct, and their tests."""

    runner: str
    language: str
    parser: str
    """Name of SWE-bench's parser for the output of this runner."""
    command: str
    source: str
    """File with the functions."""
    code: str
    bugs: dict[str, tuple[str, str]]
    """For each function, the right code, and the wrong code that replaces it."""
    test_file: str
    header: str
    tests: dict[str, str]
    """The code of each function's tests."""
    footer: str
    fail_to_pass: dict[str, tuple[str, ...]]
    """For each function, the tests that fail because of the wrong code."""
    others: tuple[str, ...] = ()
    """Tests that always pass."""
    files: dict[str, str] = field(default_factory=dict)


FIXTURES = (
    Fixture(
        runner="pytest",
        language="Python",
        parser="parse_log_pytest",
        command="python3 -m pytest -rA",
        source="calc.py",
        code="""\
def add(a, b):
    return a + b


def clamp(value, low, high):
    return max(low, min(value, high))


def last(items):
    return items[-1]
""",
        bugs={
            "add": ("a + b", "a - b"),
            "clamp": ("min(value, high)", "value"),
            "last": ("items[-1]", "items[0]"),
        },
        test_file="tests/test_calc.py",
        header="""\
import pytest

from calc import add, clamp, last


@pytest.mark.skip(reason="later")
def test_later():
    pass


@pytest.mark.xfail
def test_known_bug():
    assert add("a", "b") == "b"


@pytest.fixture
def letter():
    value = last(["a", "b"])
    assert value == "b"
    return value
""",
        tests={
            "add": """

@pytest.mark.parametrize("b", [2, 3, 0], ids=["one two", "one three", "zero"])
def test_add(b):
    assert add(1, b) == 1 + b
""",
            "clamp": """

class TestClamp:
    def test_high(self):
        assert clamp(5, 1, 3) == 3

    def test_low(self):
        assert clamp(0, 1, 3) == 1
""",
            "last": """

def test_last(letter):
    assert letter == "b"


def test_last_of_one():
    assert last(["a"]) == "a"
""",
        },
        footer="",
        fail_to_pass={
            "add": ("tests/test_calc.py::test_add[one",),
            "clamp": ("tests/test_calc.py::TestClamp::test_high",),
            "last": ("tests/test_calc.py::test_last",),
        },
        others=(
            "tests/test_calc.py::test_add[zero]",
            "tests/test_calc.py::TestClamp::test_low",
            "tests/test_calc.py::test_last_of_one",
            "tests/test_calc.py::test_known_bug",
        ),
        files={"conftest.py": ""},
    ),
    Fixture(
        runner="unittest",
        language="Python",
        parser="parse_log_django",
        command="python3 -m unittest -v",
        source="calc.py",
        code="""\
def add(a, b):
    return a + b


def clamp(value, low, high):
    return max(low, min(value, high))


def last(items):
    return items[-1]
""",
        bugs={
            "add": ("a + b", "a - b"),
            "clamp": ("min(value, high)", "value"),
            "last": ("items[-1]", "items[len(items)]"),
        },
        test_file="tests/test_calc.py",
        header="""\
import unittest

from calc import add, clamp, last


class OtherTest(unittest.TestCase):
    def test_three(self):
        self.assertEqual(3, 3)

    @unittest.skip("later")
    def test_later(self):
        pass

    @unittest.expectedFailure
    def test_known_bug(self):
        self.assertEqual(add("a", "b"), "b")
""",
        tests={
            "add": """

class AddTest(unittest.TestCase):
    def test_each(self):
        for number in (0, 1):
            with self.subTest(number=number):
                self.assertEqual(add(1, number), 1 + number)

    def test_zero(self):
        self.assertEqual(add(1, 0), 1)
""",
            "clamp": """

class ClampTest(unittest.TestCase):
    def test_high(self):
        self.assertEqual(clamp(5, 1, 3), 3)

    def test_low(self):
        self.assertEqual(clamp(0, 1, 3), 1)
""",
            "last": """

class LastTest(unittest.TestCase):
    def test_two(self):
        self.assertEqual(last([1, 2]), 2)
""",
        },
        footer="",
        fail_to_pass={
            "add": ("test_each (tests.test_calc.AddTest.test_each)",),
            "clamp": ("test_high (tests.test_calc.ClampTest.test_high)",),
            "last": ("test_two (tests.test_calc.LastTest.test_two)",),
        },
        others=(
            "test_zero (tests.test_calc.AddTest.test_zero)",
            "test_low (tests.test_calc.ClampTest.test_low)",
            "test_three (tests.test_calc.OtherTest.test_three)",
        ),
        files={"tests/__init__.py": ""},
    ),
    Fixture(
        runner="jest",
        language="JavaScript",
        parser="parse_log_jest",
        command="jest --verbose",
        source="calc.js",
        code="""\
exports.add = (a, b) => a + b;
exports.clamp = (value, low, high) => Math.max(low, Math.min(value, high));
exports.last = (items) => items[items.length - 1];
""",
        bugs={
            "add": ("a + b", "a - b"),
            "clamp": ("Math.min(value, high)", "value"),
            "last": ("items[items.length - 1]", "items.missing.length"),
        },
        test_file="calc.test.js",
        header="const { add, clamp, last } = require('./calc');\n\ntest.skip('later', () => {});\n",
        tests={
            "add": """
describe('add', () => {
  test('zero', () => expect(add(1, 0)).toBe(1));
  test.each([[1, 2], [2, 3]])('adds %i and %i', (a, b) => expect(add(a, b)).toBe(a + b));
});
""",
            "clamp": """
describe('clamp', () => {
  describe('with two limits', () => {
    it('keeps the upper limit', () => expect(clamp(5, 1, 3)).toBe(3));
    it('keeps the lower limit', () => expect(clamp(0, 1, 3)).toBe(1));
  });
});
""",
            "last": """
test('the last of two', () => expect(last([1, 2])).toBe(2));
""",
        },
        footer="",
        fail_to_pass={
            "add": ("adds 1 and 2", "adds 2 and 3"),
            "clamp": ("keeps the upper limit",),
            "last": ("the last of two",),
        },
        others=("zero", "keeps the lower limit"),
        files={"package.json": '{"name": "calc"}\n'},
    ),
    Fixture(
        runner="vitest",
        language="JavaScript",
        parser="parse_log_vitest",
        command="vitest run --globals --reporter=verbose",
        source="calc.mjs",
        code="""\
export const add = (a, b) => a + b;
export const clamp = (value, low, high) => Math.max(low, Math.min(value, high));
export const last = (items) => items[items.length - 1];
""",
        bugs={
            "add": ("a + b", "a - b"),
            "clamp": ("Math.min(value, high)", "value"),
            "last": ("items[items.length - 1]", "items.missing.length"),
        },
        test_file="test/calc.test.mjs",
        header="import { add, clamp, last } from '../calc.mjs';\n\ntest.skip('later', () => {});\n",
        tests={
            "add": """
describe('add', () => {
  test('zero', () => expect(add(1, 0)).toBe(1));
  test('one', () => expect(add(1, 1)).toBe(2));
});
""",
            "clamp": """
describe('clamp', () => {
  describe('with two limits', () => {
    it('keeps the upper limit', () => expect(clamp(5, 1, 3)).toBe(3));
    it('keeps the lower limit', () => expect(clamp(0, 1, 3)).toBe(1));
  });
});
""",
            "last": """
test('the last of two', () => expect(last([1, 2])).toBe(2));
""",
        },
        footer="",
        fail_to_pass={
            "add": ("test/calc.test.mjs > add > one",),
            "clamp": ("test/calc.test.mjs > clamp > with two limits > keeps the upper limit",),
            "last": ("test/calc.test.mjs > the last of two",),
        },
        others=(
            "test/calc.test.mjs > add > zero",
            "test/calc.test.mjs > clamp > with two limits > keeps the lower limit",
        ),
        files={"package.json": '{"name": "calc"}\n'},
    ),
    Fixture(
        runner="go",
        language="Go",
        parser="parse_log_gotest",
        command="go test -v ./...",
        source="calc.go",
        code="""\
package calc

func Add(a, b int) int {
	return a + b
}

func Clamp(value, low, high int) int {
	if value > high {
		return high
	}
	if value < low {
		return low
	}
	return value
}

func Last(items []int) int {
	return items[len(items)-1]
}
""",
        bugs={
            "add": ("a + b", "a - b"),
            "clamp": ("return high", "return value"),
            "last": ("items[len(items)-1]", "items[0]"),
        },
        test_file="calc_test.go",
        header="""\
package calc

import "testing"

func TestLater(t *testing.T) {
	t.Skip("later")
}
""",
        tests={
            "add": """
func TestAdd(t *testing.T) {
	for name, number := range map[string]int{"zero": 0, "one": 1} {
		t.Run(name, func(t *testing.T) {
			if Add(2, number) != 2+number {
				t.Error(Add(2, number))
			}
		})
	}
}
""",
            "clamp": """
func TestClampHigh(t *testing.T) {
	if Clamp(5, 1, 3) != 3 {
		t.Fatal(Clamp(5, 1, 3))
	}
}

func TestClampLow(t *testing.T) {
	if Clamp(0, 1, 3) != 1 {
		t.Fatal(Clamp(0, 1, 3))
	}
}
""",
            "last": """
func TestLast(t *testing.T) {
	if Last([]int{1, 2}) != 2 {
		t.Fatal(Last([]int{1, 2}))
	}
}
""",
        },
        footer="",
        fail_to_pass={"add": ("TestAdd", "TestAdd/one"), "clamp": ("TestClampHigh",), "last": ("TestLast",)},
        others=("TestAdd/zero", "TestClampLow"),
        files={"go.mod": "module example.org/calc\n\ngo 1.18\n"},
    ),
    Fixture(
        runner="cargo",
        language="Rust",
        parser="parse_log_cargo",
        command="cargo test",
        source="src/lib.rs",
        code="""\
pub fn add(a: i32, b: i32) -> i32 {
    a + b
}

pub fn clamp(value: i32, low: i32, high: i32) -> i32 {
    low.max(value.min(high))
}

pub fn last(items: &[i32]) -> i32 {
    items[items.len() - 1]
}
""",
        bugs={
            "add": ("a + b", "a - b"),
            "clamp": ("value.min(high)", "value.min(high.max(value))"),
            "last": ("items.len() - 1", "items.len()"),
        },
        test_file="tests/calc.rs",
        header="""\
use calc::*;

#[test]
#[ignore]
fn later() {}
""",
        tests={
            "add": """
mod adding {
    #[test]
    fn one() {
        assert_eq!(calc::add(1, 1), 2);
    }

    #[test]
    fn zero() {
        assert_eq!(calc::add(1, 0), 1);
    }
}
""",
            "clamp": """
#[test]
fn clamps_high() {
    assert_eq!(clamp(5, 1, 3), 3);
}

#[test]
fn clamps_low() {
    assert_eq!(clamp(0, 1, 3), 1);
}
""",
            "last": """
#[test]
fn last_of_two() {
    assert_eq!(last(&[1, 2]), 2);
}
""",
        },
        footer="",
        fail_to_pass={"add": ("adding::one",), "clamp": ("clamps_high",), "last": ("last_of_two",)},
        others=("adding::zero", "clamps_low"),
        files={"Cargo.toml": '[package]\nname = "calc"\nversion = "0.1.0"\nedition = "2021"\n'},
    ),
    Fixture(
        runner="minitest",
        language="Ruby",
        parser="parse_log_minitest",
        command="ruby -Ilib -Itest test/calc_test.rb --verbose",
        source="lib/calc.rb",
        code="""\
module Calc
  def self.add(a, b) = a + b

  def self.clamp(value, low, high) = [low, [value, high].min].max

  def self.last(items) = items[-1]
end
""",
        bugs={
            "add": ("a + b", "a - b"),
            "clamp": ("[value, high].min", "value"),
            "last": ("items[-1]", "items.missing"),
        },
        test_file="test/calc_test.rb",
        # SWE-bench's parser wants names with a period at their end, as the library shoulda makes them.
        header="""\
require "minitest/autorun"
require "calc"

class CalcTest < Minitest::Test
  def self.should(text, &block) = define_method("test_: Calc should #{text}. ", &block)
""",
        tests={
            "add": """
  should("add one") { assert_equal 2, Calc.add(1, 1) }
  should("add zero") { assert_equal 1, Calc.add(1, 0) }
""",
            "clamp": """
  should("keep the upper limit") { assert_equal 3, Calc.clamp(5, 1, 3) }
  should("keep the lower limit") { assert_equal 1, Calc.clamp(0, 1, 3) }
""",
            "last": """
  should("find the last of two") { assert_equal 2, Calc.last([1, 2]) }
""",
        },
        footer="end\n",
        fail_to_pass={
            "add": ("CalcTest#test_: Calc should add one",),
            "clamp": ("CalcTest#test_: Calc should keep the upper limit",),
            "last": ("CalcTest#test_: Calc should find the last of two",),
        },
        others=(
            "CalcTest#test_: Calc should add zero",
            "CalcTest#test_: Calc should keep the lower limit",
        ),
    ),
    Fixture(
        runner="rspec",
        language="Ruby",
        parser="parse_log_rspec_transformed_json",
        command="rspec",
        source="lib/calc.rb",
        code="""\
module Calc
  def self.add(a, b) = a + b

  def self.clamp(value, low, high) = [low, [value, high].min].max

  def self.last(items) = items[-1]
end
""",
        bugs={
            "add": ("a + b", "a - b"),
            "clamp": ("[value, high].min", "value"),
            "last": ("items[-1]", "items.missing"),
        },
        test_file="spec/calc_spec.rb",
        header="""\
require "calc"

RSpec.describe Calc do
  it("comes later") { skip }
""",
        tests={
            "add": """
  describe ".add" do
    it("adds one") { expect(Calc.add(1, 1)).to eq(2) }
    it("adds zero") { expect(Calc.add(1, 0)).to eq(1) }
  end
""",
            "clamp": """
  it("keeps the upper limit") { expect(Calc.clamp(5, 1, 3)).to eq(3) }
  it("keeps the lower limit") { expect(Calc.clamp(0, 1, 3)).to eq(1) }
""",
            "last": """
  it("finds the last of two") { expect(Calc.last([1, 2])).to eq(2) }
""",
        },
        footer="end\n",
        fail_to_pass={
            "add": ("Calc.add adds one",),
            "clamp": ("Calc keeps the upper limit",),
            "last": ("Calc finds the last of two",),
        },
        others=("Calc.add adds zero", "Calc keeps the lower limit"),
        # SWE-bench prints one line for each example of rspec's JSON report.
        files={
            ".rspec": "--require spec_helper\n",
            "spec/spec_helper.rb": """\
RSpec.configure do |config|
  config.after do |example|
    puts "\\n#{example.full_description} - #{example.exception ? "failed" : "passed"}"
  end
end
""",
        },
    ),
)
