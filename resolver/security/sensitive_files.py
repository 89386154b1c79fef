"""The files whose changes tests cannot judge, because the files act outside of the tests.

`FILE_KINDS` is the only list of these files. Files that act on their own, such as hooks and workflows, are left
to maintainers. A reviewer is asked to look at the others.
"""

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import translate
from functools import cached_property
from typing import Literal

Handling = Literal["maintainers", "reviewers"]
"""`maintainers`: the change is left out of the patch, except if the operator's `allowed_paths` permit it.
`reviewers`: the pull request names the file.
"""


@dataclass(frozen=True)
class FileKind:
    """A kind of files, and what is done with a change to one of them."""

    handling: Handling
    reason: str
    """What the file does, as a clause that begins with a verb."""
    patterns: str
    """Patterns in lowercase, separated by spaces. A pattern without a slash matches the file's name. The others
    match the whole path with a slash before it; there, an asterisk also matches slashes.
    """

    def matches(self, path: str) -> bool:
        whole_path = f"/{path}".casefold()
        return bool(
            self._path_regex.match(whole_path) or self._name_regex.match(posixpath.basename(whole_path))
        )

    @cached_property
    def _path_regex(self) -> re.Pattern[str]:
        return _compile(pattern for pattern in self.patterns.split() if "/" in pattern)

    @cached_property
    def _name_regex(self) -> re.Pattern[str]:
        return _compile(pattern for pattern in self.patterns.split() if "/" not in pattern)


def _compile(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, patterns)) or r"(?!)")


CI_SERVICES = FileKind(
    "maintainers",
    "runs in CI",
    "/.gitlab-ci.y*ml /.gitlab/* /.circleci/* /.travis.y*ml /.drone.* /.cirrus.* /.buildkite/* /.woodpecker* "
    "/.forgejo/* /.gitea/* /.azure-pipelines/* /*azure-pipelines*.y*ml /.vsts-ci.y*ml /.ci/* jenkinsfile* "
    "*.jenkinsfile /.teamcity/* /appveyor.y*ml /.appveyor.y*ml /bitbucket-pipelines.y*ml /.semaphore/* /.tekton/* "
    "/*buildspec*.y*ml /cloudbuild*.y*ml /cloudbuild*.json /.build.y*ml /.builds/* /codefresh.y*ml /.codefresh/* "
    "/bitrise.y*ml /codemagic.y*ml /wercker.y*ml /.vela.y*ml /*screwdriver.y*ml /*zuul.y*ml /*zuul.d/* /.harness/* "
    "/.space.kts /.scrutinizer.y*ml /.readthedocs.y*ml /readthedocs.y*ml /.prow* /ci_scripts/*",
)
"""The configuration of CI services other than GitHub Actions."""

FILE_KINDS = (
    FileKind("maintainers", "decides where git fetches other code from", ".gitmodules .lfsconfig"),
    FileKind("maintainers", "runs in CI", "/.github/workflows/* /.github/actions/* action.yml action.yaml"),
    CI_SERVICES,
    FileKind(
        "maintainers",
        "runs on a commit",
        "*/.husky/* .huskyrc* husky.config.* */.githooks/* */.git-hooks/* */githooks/* .pre-commit-config.y*ml "
        "prek.toml lefthook.* .lefthook.* */.lefthook*/* lefthook-local.* .lefthook-local.* simple-git-hooks.* "
        ".simple-git-hooks.* .lintstagedrc* lint-staged.config.* .overcommit.yml captainhook.json grumphp.y*ml*",
    ),
    FileKind(
        "maintainers",
        "configures what bots may do",
        "/.github/patchwright.toml /.github/patchwright/* /.github/settings.yml codeowners /.github/dependabot.y*ml "
        "/.github/*.json5 renovate.json* .renovaterc* /.mergify.y*ml /.mergify/* /.github/mergify.y*ml "
        "/.github/kodiak.toml /.kodiak.toml /.bulldozer.y*ml /.policy.y*ml /bors.toml /.pyup.y*ml /.snyk",
    ),
    FileKind(
        "maintainers",
        "starts commands when somebody opens the repository",
        "*/.devcontainer/* .devcontainer.json */.vscode/tasks.json */.vscode/settings.json *.code-workspace "
        "*/.idea/startup.xml */.idea/workspace.xml */.zed/* .nvim.lua .nvimrc .exrc .vimrc .lvimrc .dir-locals*.el "
        ".envrc* .autoenv* mise.toml mise.*.toml .mise.toml .mise.*.toml */.config/mise/* */.mise/* /.gitpod.* "
        "/.ona/* /.codesandbox/* /.stackblitzrc /.replit /.idx/*",
    ),
    FileKind(
        "maintainers",
        "decides what AI agents may do, or starts commands for them",
        "*/.claude/settings*.json */.claude/hooks/* */.claude/plugins/* .mcp.json */.vscode/mcp.json */.cursor/*.json "
        "*/.cursor/hooks/* */.codex/* */.gemini/*.json */.gemini/extensions/* */.windsurf/*.json */.roo/mcp.json "
        "*/.kiro/settings/* */.kiro/hooks/* */.amazonq/*.json */.junie/mcp/* */.trae/*.json */.continue/config.* "
        "*/.continue/mcpservers/* opencode.json* */.opencode/* crush.json .crush.json .aider.conf.y*ml */.qwen/*.json "
        "*/.factory/* /.github/hooks/* /.github/copilot/* /.github/mcp.json /.openhands/*.sh /.openhands/*.json",
    ),
    FileKind(
        "reviewers",
        "contains instructions for AI agents",
        "agents.md agents.override.md claude.md claude.local.md gemini.md warp.md skill.md /repo.md */.claude/* "
        "/.github/copilot-instructions.md /.github/instructions/* /.github/prompts/* /.github/agents/* "
        "/.github/chatmodes/* /.github/skills/* .cursorrules */.cursor/* */.agents/* */.openhands/* .windsurfrules "
        "*/.windsurf/* .clinerules* */.clinerules/* .roorules* */.roo/* */.kiro/* */.junie/* */.amazonq/* "
        "*/.continue/* */.gemini/* */.trae/* */.qwen/* .goosehints .rules .augment-guidelines */.augment/* "
        ".coderabbit.y*ml .pr_agent.toml",
    ),
    FileKind(
        "reviewers",
        "can start commands in an editor",
        "*/.vscode/* */.idea/* */.run/* */.fleet/* *.sublime-project */.settings/* .project */.vs/* *.xcscheme "
        "*/.theia/* */.helix/*",
    ),
    FileKind("reviewers", "can hide changes from a diff, or convert files", ".gitattributes .gitconfig"),
    FileKind(
        "reviewers",
        "contains compiled code, which a diff does not show",
        "*.jar *.war *.class *.pyc *.pyd *.so *.so.* *.dll *.dylib *.exe *.node *.wasm *.whl *.egg *.gem *.nupkg *.a "
        "*.o *.lib *.rlib *.beam *.phar *.tgz *.crate",
    ),
    FileKind(
        "reviewers",
        "contains a copy of another project's code",
        "*/node_modules/* */bower_components/* */jspm_packages/* */vendor/* */_vendor/* */third_party/* "
        "*/site-packages/* */*.dist-info/* */*.egg-info/* /.yarn/cache/* /.yarn/unplugged/*",
    ),
    FileKind(
        "reviewers",
        "decides which version of a tool runs",
        ".nvmrc .node-version .python-version .ruby-version .ruby-gemset .go-version .java-version .php-version "
        ".swift-version .xcode-version .terraform-version .tool-versions .sdkmanrc .prototools rust-toolchain "
        "rust-toolchain.toml runtime.txt global.json .bazelversion .fvmrc",
    ),
    FileKind(
        "reviewers",
        "changes what is deployed",
        "netlify.toml vercel.json now.json render.y*ml fly.toml app.json app.yaml procfile heroku.yml firebase.json "
        "wrangler.* serverless.y*ml amplify.yml railway.* *.tf *.tfvars .terraform.lock.hcl *.bicep chart.yaml "
        "helmfile.y*ml kustomization.y*ml skaffold.y*ml pulumi.* samconfig.toml cdk.json dagger.json",
    ),
    FileKind(
        "reviewers",
        "changes what is installed or built",
        # Python
        "pyproject.toml setup.py setup.cfg *requirements*.txt *requirements*.in */requirements/*.txt "
        "*/requirements/*.in *constraints*.txt pipfile *.lock uv.toml pdm.toml poetry.toml pylock*.toml "
        "environment*.y*ml conda*.y*ml meta.yaml pixi.toml hatch.toml hatch_build.py pip.conf buildout.cfg manifest.in "
        # JavaScript
        "package.json *-lock.json *-lock.y*ml npm-shrinkwrap.json bun.lockb bunfig.toml .npmrc .yarnrc* */.yarn/* "
        ".pnp.* .pnpmfile.* pnpm-workspace.y*ml binding.gyp deno.json* import_map.json bower.json lerna.json nx.json "
        "turbo.json rush.json gulpfile.* gruntfile.* webpack*.js *.config.js *.config.ts *.config.[cm]js "
        "*.config.[cm]ts */patches/*.patch "
        # Rust, Go, Zig, C and C++
        "cargo.toml build.rs */.cargo/* go.mod go.sum go.work* build.zig* cmakelists.txt *.cmake cmakepresets.json "
        "meson.build meson_options.txt configure configure.ac *.m4 conanfile.* vcpkg.json sconstruct "
        # Java, Kotlin, Scala and Clojure
        "pom.xml *.gradle *.gradle.kts gradle.properties */gradle/* gradlew* */buildsrc/* */.mvn/* mvnw* build.xml "
        "ivy.xml *.sbt */project/*.properties build.sc build.mill project.clj deps.edn "
        # Ruby, PHP, .NET, Swift, Dart, Elixir, Haskell, Perl, R, Julia and others
        "gemfile gems.rb gems.locked *.gemspec rakefile */.bundle/* composer.json *.*proj *.props *.targets *.sln "
        "packages.config nuget.config paket.* package.swift package.resolved podfile *.podspec cartfile* "
        "project.pbxproj pubspec.* mix.exs rebar.config *.cabal stack.yaml cabal.project* cpanfile* makefile.pl "
        "build.pl renv.lock project.toml manifest.toml *.rockspec elm.json shard.yml "
        # Containers, Nix, Bazel, make and other build tools
        "*dockerfile* containerfile* compose*.y*ml docker-compose*.y*ml .dockerignore docker-bake.* *.nix devbox.json "
        "devenv.y*ml vagrantfile apt.txt aptfile brewfile build build.bazel workspace workspace.bazel module.bazel "
        ".bazelrc *.bzl buck makefile* gnumakefile *.mk *.mak justfile *.just taskfile*.y*ml earthfile",
    ),
)
"""All kinds. The first kind that matches a path counts."""


def find_file_kind(path: str) -> FileKind | None:
    """Returns the kind of this file, or None if the file is of none of these kinds."""
    return next((kind for kind in FILE_KINDS if kind.matches(path)), None)
