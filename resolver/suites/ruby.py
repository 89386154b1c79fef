"""Finds Ruby test suites: rspec if there are specs, minitest if there are tests."""

import re

from patchwright.resolver.runner_names import RunnerName
from patchwright.resolver.suites.project_dir import LanguageSupport, ProjectDir, summarize_files
from patchwright.resolver.suites.suite import Suite

SPEC_FILES = re.compile(r"spec/(?:.*/)?[^/]+_spec\.rb")
TEST_FILES = re.compile(r"test/(?:.*/)?(?:test_[^/]+|[^/]+_test)\.rb")
_REQUIRE_ALL_TESTS = 'Dir["./test/**/{test_*,*_test}.rb"].sort.each { |file| require file }'


def find_suite(project: ProjectDir) -> Suite | None:
    bundle = "bundle exec " if "Gemfile" in project.files else ""
    if specs := project.match_files(SPEC_FILES):
        return project.make_suite(f"{bundle}rspec", "rspec", f"There are specs, {summarize_files(specs)}.")
    tests = project.match_files(TEST_FILES)
    if not tests:
        return None
    reason = f"There are tests, {summarize_files(tests)}"
    if "bin/rails" in project.files:
        return project.make_suite("bin/rails test", "minitest", f"{reason}, in a Rails application.")
    if detect_task_runner(project, "rake test") == "minitest":
        return project.make_suite(
            f"{bundle}rake test", "minitest", f"{reason}, and the Rakefile has a task for them."
        )
    return project.make_suite(
        f"{bundle}ruby -Ilib -Itest -e '{_REQUIRE_ALL_TESTS}'",
        "minitest",
        f"{reason}, but no Rakefile task for them.",
    )


def detect_task_runner(project: ProjectDir, command: str) -> RunnerName:
    """Returns the runner that `rake test` or `rake spec` starts, or "none" if it is unknown."""
    task = re.fullmatch(r"(?:bundle exec )?rake(?: (test|spec))?", command.strip())
    text = project.contents.get("Rakefile", "")
    if task is None:
        return "none"
    if "RSpec::Core::RakeTask" in text and task[1] != "test" and project.match_files(SPEC_FILES):
        return "rspec"
    return (
        "minitest" if re.search(r"Rake::TestTask|Minitest::TestTask", text) and task[1] != "spec" else "none"
    )


RUBY = LanguageSupport(
    "ruby",
    re.compile(r"Gemfile|Rakefile|\.rspec|[^/]+\.gemspec"),
    re.compile(rf"(?:.*/)?(?:{SPEC_FILES.pattern}|{TEST_FILES.pattern})"),
    (".rb", ".rake", ".erb"),
    find_suite,
)
