"""Searches the work tree. Checks each request, and then runs the search program, which has limits of
its own.
"""

import json
import os
import re
from collections.abc import Mapping

from patchwright.runtime import program
from patchwright.runtime.actions import SearchCode
from patchwright.runtime.features import SandboxFeatures
from patchwright.runtime.observations import TextResult
from patchwright.runtime.path_guard import PathGuard, ToolInputError, path_error
from patchwright.runtime.search.search_main import MALFORMED_EXIT_CODE, SEARCH_TIMEOUT

KILL_GRACE = 10.0  # Seconds to wait for the program beyond its own time limit.
_GLOB_CHARACTERS = re.compile(r"[*?\[{]")


class CodeSearch:
    """Finds text and symbols in one work tree. Its methods raise ToolInputError, whose message says what to
    do instead.
    """

    def __init__(
        self,
        paths: PathGuard,
        env: Mapping[str, str],
        features: SandboxFeatures,
        timeout: float = SEARCH_TIMEOUT,
    ) -> None:
        self._paths = paths
        self._env = env
        self._features = features
        self._timeout = timeout

    async def search(self, action: SearchCode) -> TextResult:
        """Run a search and return its results as text. Raises ToolInputError for an invalid request."""
        if action.what != "outline" and not action.query.strip():
            raise ToolInputError(
                "malformed", f"query is empty, but a search for {action.what} needs a text or a name"
            )
        if "\0" in action.query:
            raise ToolInputError(
                "malformed", "query must not contain a NUL character, because binary files are not searched"
            )
        if action.what == "text" and "\n" in action.query:
            raise ToolInputError(
                "malformed", "query must be a single line, because text is searched line by line"
            )
        top, glob = self._split_path(action.path)
        if action.what == "outline":
            if glob or not action.path:
                raise ToolInputError("malformed", "an outline needs the path of one file, without * or ?")
            self._paths.resolve_file(action.path)
        request = {
            "what": action.what,
            "query": action.query,
            "root": str(self._paths.root),
            "top": top,
            "glob": glob,
            "literal": action.literal,
            "ignore_case": action.ignore_case,
            "seconds": self._timeout,
        }
        command = self._features.program_command("symbols", "patchwright.runtime.search.search_main")
        arguments = (*command, json.dumps(request))
        result = await program.run(arguments, self._paths.root, self._env, self._timeout + KILL_GRACE)
        if result.exit_code == MALFORMED_EXIT_CODE:
            raise ToolInputError("malformed", result.stderr.head.decode("utf-8", "replace").strip())
        if result.exit_code != 0:
            raise ToolInputError(
                "io",
                "the search took too much time or memory: search one directory (path), or use a simpler pattern",
            )
        return TextResult(text=result.stdout.head.decode("utf-8", "replace"))

    def _split_path(self, path: str) -> tuple[str, str]:
        """Split `path` into a path and a glob. The path is relative to the root, or absolute if it is in the
        scratch directory. At least one of the two is empty.
        """
        if path in ("", ".", "./", "/", str(self._paths.root)):
            return "", ""
        if path.startswith(f"{self._paths.root}/"):
            path = path.removeprefix(f"{self._paths.root}/")
        if _GLOB_CHARACTERS.search(path) and not os.path.lexists(self._paths.root / path):
            if path.startswith(("/", "../")):
                raise ToolInputError(
                    "refused", f"{path} must be relative to {self._paths.root}, because it is a glob"
                )
            return "", path
        real = self._paths.resolve(path)
        try:
            real.stat()
        except OSError as error:
            raise path_error(path, error) from error
        if real == self._paths.root:
            return "", ""
        return str(real.relative_to(self._paths.root) if real.is_relative_to(self._paths.root) else real), ""
