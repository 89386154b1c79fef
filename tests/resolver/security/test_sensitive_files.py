"""The kinds of files that only maintainers may change, or that a reviewer is asked to look at."""

import pytest

from patchwright.resolver.security.sensitive_files import FILE_KINDS, find_file_kind

MAINTAINERS, REVIEWERS = "maintainers", "reviewers"
EXAMPLES = [
    (MAINTAINERS, "decides where git fetches other code from", ".gitmodules sub/.lfsconfig"),
    (
        MAINTAINERS,
        "runs in CI",
        ".github/workflows/ci.yml .github/workflows/ci.yaml "
        ".GitHub/Workflows/ci.yml .github/actions/setup/run.sh action.yml .gitlab-ci.yml "
        ".circleci/config.yml ci/Jenkinsfile .travis.yml azure-pipelines.yml .buildkite/pipeline.yml .drone.yml "
        "appveyor.yml bitbucket-pipelines.yml .semaphore/semaphore.yml .tekton/push.yaml buildspec.yml "
        "cloudbuild.yaml .builds/debian.yml codemagic.yaml .teamcity/settings.kts .cirrus.star .woodpecker/a.yaml "
        ".zuul.d/jobs.yaml .readthedocs.yaml ci_scripts/ci_post_clone.sh",
    ),
    (
        MAINTAINERS,
        "runs on a commit",
        ".husky/pre-commit web/.husky/_/husky.sh .githooks/pre-push .pre-commit-config.yaml lefthook.yml "
        ".lefthook.toml .lefthook/pre-commit/lint.sh .simple-git-hooks.json .lintstagedrc.json prek.toml",
    ),
    (
        MAINTAINERS,
        "configures what bots may do",
        ".github/patchwright.toml .github/patchwright/setup.sh .github/dependabot.yml docs/CODEOWNERS renovate.json "
        ".github/renovate.json5 .mergify.yml",
    ),
    (
        MAINTAINERS,
        "starts commands when somebody opens the repository",
        ".devcontainer/devcontainer.json .devcontainer/post-create.sh .devcontainer.json .vscode/tasks.json "
        "api/.vscode/settings.json shop.code-workspace .idea/startup.xml .envrc api/.envrc.local mise.toml "
        ".config/mise/config.toml .dir-locals.el .exrc .gitpod.yml .codesandbox/tasks.json .zed/tasks.json",
    ),
    (
        MAINTAINERS,
        "decides what AI agents may do, or starts commands for them",
        ".claude/settings.json .claude/hooks/check.sh .mcp.json api/.mcp.json .cursor/mcp.json .cursor/hooks.json "
        ".cursor/environment.json .vscode/mcp.json .codex/config.toml .gemini/settings.json opencode.json "
        ".opencode/plugin/a.ts .kiro/hooks/a.json .github/hooks/a.json .openhands/setup.sh .aider.conf.yml",
    ),
    (
        REVIEWERS,
        "contains instructions for AI agents",
        "AGENTS.md api/AGENTS.md CLAUDE.md GEMINI.md .claude/commands/fix.md .claude/agents/a.md .cursorrules "
        ".cursor/rules/style.mdc .github/copilot-instructions.md .github/prompts/a.prompt.md .windsurfrules "
        ".clinerules .agents/skills/a/SKILL.md .openhands/microagents/repo.md .kiro/steering/a.md .junie/guidelines.md",
    ),
    (
        REVIEWERS,
        "can start commands in an editor",
        ".vscode/launch.json .vscode/extensions.json .idea/runConfigurations/all.xml .run/all.run.xml .fleet/run.json",
    ),
    (REVIEWERS, "can hide changes from a diff, or convert files", ".gitattributes docs/.gitattributes"),
    (
        REVIEWERS,
        "contains compiled code, which a diff does not show",
        "gradle/wrapper/gradle-wrapper.jar lib/a.so native.node __pycache__/calc.cpython-311.pyc tool.exe parser.wasm",
    ),
    (
        REVIEWERS,
        "contains a copy of another project's code",
        "node_modules/jest/index.js api/vendor/a.go src/pip/_vendor/six.py pytest.dist-info/entry_points.txt "
        ".yarn/cache/a.zip",
    ),
    (
        REVIEWERS,
        "decides which version of a tool runs",
        ".nvmrc .node-version .tool-versions rust-toolchain.toml",
    ),
    (
        REVIEWERS,
        "changes what is deployed",
        "netlify.toml Procfile infra/main.tf charts/a/Chart.yaml wrangler.toml",
    ),
    (
        REVIEWERS,
        "changes what is installed or built",
        "pyproject.toml setup.py requirements.txt dev-requirements.txt requirements/dev.txt Pipfile.lock "
        "poetry.lock uv.lock environment.yml package.json yarn.lock package-lock.json pnpm-lock.yaml bun.lockb "
        ".npmrc .yarnrc.yml .yarn/releases/yarn-4.cjs .pnp.cjs .pnpmfile.cjs binding.gyp deno.json deno.jsonc "
        "rollup.config.mjs Cargo.toml build.rs .cargo/config.toml go.mod go.sum go.work CMakeLists.txt "
        "pom.xml build.gradle.kts gradle/libs.versions.toml .mvn/wrapper/maven-wrapper.properties gradlew build.sbt "
        "Gemfile Gemfile.lock shop.gemspec composer.json composer.lock src/Shop.csproj Directory.Build.props "
        "Package.swift Package.resolved Podfile pubspec.yaml mix.exs flake.nix flake.lock Dockerfile api.Dockerfile "
        "compose.yaml docker-compose.dev.yml BUILD.bazel WORKSPACE Makefile rules.mk justfile Taskfile.yml",
    ),
]
ORDINARY_FILES = (
    "README.md docs/claude.html src/workspace/files.ts src/build/output.py test/composer.py app/husky.py a.config.json "
    "src/vendors.py settings.json tasks.json launch.json src/requirements/parser.py locales/app.po src/lock.py "
    "src/makefiles/parser.py .gitignore .editorconfig LICENSE docs/agents/index.md actions.yml src/procfile/read.go"
)


@pytest.mark.parametrize(("handling", "reason", "paths"), EXAMPLES, ids=[reason for _, reason, _ in EXAMPLES])
def test_each_kind_of_sensitive_file_is_recognized(handling: str, reason: str, paths: str) -> None:
    kinds = {path: find_file_kind(path) for path in paths.split()}
    assert {path: kind and (kind.handling, kind.reason) for path, kind in kinds.items()} == dict.fromkeys(
        kinds, (handling, reason)
    )


def test_every_kind_has_examples() -> None:
    assert list(dict.fromkeys((kind.handling, kind.reason) for kind in FILE_KINDS)) == [
        row[:2] for row in EXAMPLES
    ]


@pytest.mark.parametrize("path", ORDINARY_FILES.split())
def test_an_ordinary_file_is_of_no_kind(path: str) -> None:
    assert find_file_kind(path) is None
