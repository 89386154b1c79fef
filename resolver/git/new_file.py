"""Adds a file to a patch."""

from patchwright.resolver.domain import Patch

_NEW_FILE_DIFF = """\
diff --git a/{path} b/{path}
new file mode 100644
--- /dev/null
+++ b/{path}
@@ -0,0 +1,{lines} @@
{text}"""


def add_file(patch: Patch, path: str, text: str) -> Patch:
    """Adds a new text file to the patch and returns the patch. The text must end with a line break."""
    lines = text.split("\n")[:-1]
    diff = _NEW_FILE_DIFF.format(path=path, lines=len(lines), text="".join(f"+{line}\n" for line in lines))
    original = patch.diff if not patch.diff or patch.diff.endswith(b"\n") else patch.diff + b"\n"
    return patch.model_copy(update={"diff": original + diff.encode()})
