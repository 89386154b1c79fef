"""Code search in every sandbox."""

from patchwright.runtime.actions import SearchCode
from patchwright.runtime.observations import TextResult
from patchwright.runtime.sandbox import Sandbox
from tests.contracts.sandbox_actions import failed, shell

SOURCE = (
    "class Cart:\n    def total(self):\n        return sum(self.prices)\n\n\nprint(Cart().total())  # total\n"
)


async def found(sandbox: Sandbox, query: str, what: str = "text", path: str = "") -> str:
    result = await sandbox.act(SearchCode.model_validate({"query": query, "what": what, "path": path}))
    assert isinstance(result, TextResult), result
    return result.text


async def test_a_search_sees_the_current_tree(sandbox: Sandbox) -> None:
    await shell(
        sandbox, "git init -q && printf 'built/\\n' > .gitignore && mkdir built && echo total > built/x.txt"
    )
    assert await found(sandbox, "total") == "[no line found in 1 text files]"
    await shell(sandbox, f"cat > cart.py <<'END'\n{SOURCE}END")
    assert await found(sandbox, r"\btotal\(") == (
        "cart.py:2: def total(self):\ncart.py:6: print(Cart().total())  # total\n\n[2 lines in 1 file]"
    ).replace(": def", ":     def")
    assert await found(sandbox, "Cart.total", "definitions") == (
        "cart.py:2-3: def total(self):  [in Cart]\n\n[1 definition in 1 file]"
    )
    assert await found(sandbox, "total", "references") == (
        "cart.py:2: def total(self):  [its definition]\ncart.py:6: print(Cart().total())  # total\n\n"
        "[2 lines in 1 file]"
    )
    assert await found(sandbox, "", "outline", "cart.py") == (
        "[cart.py, 6 lines; python]\n1-3: class Cart:\n2-3:   def total(self):"
    )


async def test_an_impossible_search_is_explained(sandbox: Sandbox) -> None:
    gone = await failed(sandbox, SearchCode(query="a", path="gone"))
    assert gone.reason == "not_found" and "list its directory" in gone.message
    outside = await failed(sandbox, SearchCode(query="root", path="/etc/passwd"))
    assert outside.reason == "refused"


async def test_a_flood_of_hits_is_cut_and_counted(sandbox: Sandbox) -> None:
    await shell(
        sandbox, "yes 'a word' | head -n 30000 > many.txt; head -c 1000000 /dev/zero | tr '\\0' w > long.txt"
    )
    result = await found(sandbox, "w")
    assert len(result) < 30_000
    assert "[20,000+ lines in 2 files; only 51 are shown above]" in result
