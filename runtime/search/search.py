"""Searching the work tree: the request is checked here, and answered by a program with limits of its own."""

import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from runtime import program
from runtime.actions import SearchCode
from runtime.observations import Viewed
from runtime.plugins import Plugins
from runtime.search.searcher import MALFORMED, SECONDS
from runtime.tree import Tree, Unfit, missing

KILLED = 10.0  # seconds beyond the program's own limit
_MAGIC = re.compile(r"[*?\[{]")
_BOOT = "import sys; sys.path[:0] = sys.argv[1:3]; del sys.argv[1:3]; from runtime.search.searcher import main; main()"


class Searching:
    """Finds text and symbols in one work tree. Methods raise Unfit with what to do instead."""

    def __init__(
        self, tree: Tree, env: Mapping[str, str], plugins: Plugins, seconds: float = SECONDS
    ) -> None:
        self._tree = tree
        self._env = env
        self._plugins = plugins
        self._seconds = seconds

    async def search(self, action: SearchCode) -> Viewed:
        """The answer as text."""
        if action.what != "outline" and not action.query.strip():
            raise Unfit("malformed", f"query is empty: say which text or name you look for ({action.what})")
        if "\0" in action.query:
            raise Unfit("malformed", "query cannot hold a NUL character: such files are not searched")
        if action.what == "text" and "\n" in action.query:
            raise Unfit("malformed", "text is searched line by line: give one line of it as query")
        top, glob = self._where(action.path)
        if action.what == "outline":
            if glob or not action.path:
                raise Unfit("malformed", "an outline is of one file: give its path, without * or ?")
            self._tree.file(action.path)
        request = {
            "what": action.what,
            "query": action.query,
            "root": str(self._tree.root),
            "top": top,
            "glob": glob,
            "literal": action.literal,
            "ignore_case": action.ignore_case,
            "seconds": self._seconds,
        }
        ours = Path(__file__).parents[2]
        packages = self._plugins.packages("symbols") or ours
        command = [sys.executable, "-I", "-c", _BOOT, str(ours), str(packages), json.dumps(request)]
        ended = await program.run(command, self._tree.root, self._env, self._seconds + KILLED)
        if ended.code == MALFORMED:
            raise Unfit("malformed", ended.stderr.head.decode("utf-8", "replace").strip())
        if ended.code != 0:
            raise Unfit("io", "the search took too much time or memory: name a path, or a simpler pattern")
        return Viewed(text=ended.stdout.head.decode("utf-8", "replace"))

    def _where(self, path: str) -> tuple[str, str]:
        """What is searched: a path below the root (or an absolute one, in the scratch directory), and a glob."""
        if path in ("", ".", "./", "/", str(self._tree.root)):
            return "", ""
        if path.startswith(f"{self._tree.root}/"):
            path = path.removeprefix(f"{self._tree.root}/")
        if _MAGIC.search(path) and not os.path.lexists(self._tree.root / path):
            if path.startswith(("/", "../")):
                raise Unfit("refused", f"a glob is relative to {self._tree.root}: {path} is not")
            return "", path
        real = self._tree.find(path)
        try:
            real.stat()
        except OSError as error:
            raise missing(path, error) from error
        if real == self._tree.root:
            return "", ""
        return str(real.relative_to(self._tree.root) if real.is_relative_to(self._tree.root) else real), ""
