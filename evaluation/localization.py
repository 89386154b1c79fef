"""Which files an issue is about: the files that the agent looked at, and those that a search with its words finds.

The search ranks files with BM25, as Agentless-Lite does with embeddings. Source: Robertson and Zaragoza, "The
Probabilistic Relevance Framework: BM25 and Beyond" (2009)
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from patchwright.resolver.events import Trajectory
from patchwright.resolver.git.repository import Workspace
from patchwright.resolver.run_calls import iter_calls
from patchwright.resolver.suites.file_classifier import is_test_related
from patchwright.runtime.actions import CreateFile, InsertText, ReplaceText, ViewFile

TOP = 5  # files; recall is measured at this rank
MAX_FILES, MAX_FILE_BYTES = 20_000, 200_000
K1, B = 1.5, 0.75  # the usual parameters of BM25
PATH_WEIGHT = 5  # A word of the path counts as if it stood this often in the file.
_WORD = re.compile(r"[A-Za-z][a-z]+|[A-Z]+(?![a-z])|[A-Za-z]{2,}")
_SOURCE = re.compile(
    r".+\.(c|cc|cpp|cs|go|h|hpp|java|js|jsx|cjs|mjs|kt|php|py|pyi|rb|rs|scala|swift|ts|tsx|vue|css|scss|html)"
)


async def rank_files(workspace: Workspace, text: str) -> tuple[str, ...]:
    """Returns the source files, without tests, whose words fit the text best."""
    entries = [entry for entry in await workspace.find_entries(_SOURCE) if not is_test_related(entry.path)]
    entries = entries[:MAX_FILES]
    contents = await workspace.read_blobs(tuple(entry.id for entry in entries), MAX_FILE_BYTES)
    texts = {
        entry.path: content.decode(errors="replace")
        for entry in entries
        if isinstance(content := contents.get(entry.id), bytes)
    }
    return rank_texts(texts, text)


def rank_texts(texts: Mapping[str, str], query: str) -> tuple[str, ...]:
    """Returns the paths of the texts that fit the query best, best first."""
    counts = {path: _count_words(path, text) for path, text in texts.items()}
    lengths = {path: words.total() for path, words in counts.items()}
    average = sum(lengths.values()) / max(1, len(lengths)) or 1
    scores: Counter[str] = Counter()
    for word in set(_split_words(query)):
        matching = [path for path, words in counts.items() if word in words]
        weight = math.log(1 + (len(counts) - len(matching) + 0.5) / (len(matching) + 0.5))
        for path in matching:
            frequency = counts[path][word]
            norm = K1 * (1 - B + B * lengths[path] / average)
            scores[path] += weight * frequency * (K1 + 1) / (frequency + norm)  # type: ignore[assignment]
    return tuple(sorted(scores, key=lambda path: (-scores[path], path))[:TOP])


def _count_words(path: str, text: str) -> Counter[str]:
    words = Counter(_split_words(text))
    for word in _split_words(PurePosixPath(path).with_suffix("").as_posix()):
        words[word] += PATH_WEIGHT
    return words


def _split_words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def list_viewed_files(trajectory: Trajectory) -> tuple[str, ...]:
    """Returns the files that the agent viewed or edited, in the order of the first access."""
    found: dict[str, None] = {}
    for call in iter_calls(trajectory):
        if isinstance(call.action, ViewFile | ReplaceText | InsertText | CreateFile):
            path = call.action.path
            if PurePosixPath(path).suffix:  # otherwise, a directory
                found.setdefault(path.removeprefix("/").removeprefix("./"))
    return tuple(found)


def recall(found: Sequence[str], gold: Iterable[str]) -> float | None:
    """Returns the share of the gold source files that are among the first TOP found ones; None without such files.

    A found path may be absolute, so its end is compared.
    """
    wanted = {path for path in gold if _SOURCE.fullmatch(path)}
    if not wanted:
        return None
    first = found[:TOP]
    hits = sum(any(path == each or path.endswith(f"/{each}") for path in first) for each in wanted)
    return hits / len(wanted)
