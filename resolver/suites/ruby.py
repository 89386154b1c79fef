"""Ruby: rspec where there are specs, minitest where there are tests."""

import re

from resolver.suites.kind import Kind
from resolver.suites.part import Family, Part, quoted
from resolver.suites.suite import Suite

SPECS = re.compile(r"spec/(?:.*/)?[^/]+_spec\.rb")
TESTS = re.compile(r"test/(?:.*/)?(?:test_[^/]+|[^/]+_test)\.rb")
_EACH = 'Dir["./test/**/{test_*,*_test}.rb"].sort.each { |file| require file }'


def find(part: Part) -> Suite | None:
    bundle = "bundle exec " if "Gemfile" in part.files else ""
    if specs := part.named(SPECS):
        return part.suite(f"{bundle}rspec", "rspec", f"There are specs, {quoted(specs)}.")
    tests = part.named(TESTS)
    if not tests:
        return None
    there = f"There are tests, {quoted(tests)}"
    if "bin/rails" in part.files:
        return part.suite("bin/rails test", "minitest", f"{there}, of a Rails application.")
    if task_kind(part, "rake test") == "minitest":
        return part.suite(f"{bundle}rake test", "minitest", f"{there}, and the Rakefile has a task for them.")
    return part.suite(
        f"{bundle}ruby -Ilib -Itest -e '{_EACH}'", "minitest", f"{there}, and no Rakefile for them."
    )


def task_kind(part: Part, command: str) -> Kind:
    """The runner behind `rake test` and its like."""
    task = re.fullmatch(r"(?:bundle exec )?rake(?: (test|spec))?", command.strip())
    text = part.texts.get("Rakefile", "")
    if task is None:
        return "none"
    if "RSpec::Core::RakeTask" in text and task[1] != "test" and part.named(SPECS):
        return "rspec"
    return (
        "minitest" if re.search(r"Rake::TestTask|Minitest::TestTask", text) and task[1] != "spec" else "none"
    )


RUBY = Family(
    "ruby",
    re.compile(r"Gemfile|Rakefile|\.rspec|[^/]+\.gemspec"),
    re.compile(rf"(?:.*/)?(?:{SPECS.pattern}|{TESTS.pattern})"),
    (".rb", ".rake", ".erb"),
    find,
)
