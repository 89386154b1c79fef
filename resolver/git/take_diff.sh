# Arguments: work tree, Patchwright's directory, base commit, ignore patterns, and then either `diff` with the
# maximum number of bytes, or `names` with the maximum number of paths. The script creates a new repository each
# time, so that the configuration, hooks, filters, index and commits in the work tree have no effect. It leaves the
# repository behind for `diff_files`. It uses the git
# objects of the work tree's repository. If that repository is broken, it uses the objects of `sent.git`.
# `base-index` is a copy of the index at the base, which unpack_tree.sh wrote; with it, git recognizes
# unchanged files. The script starts few programs, because each start takes some milliseconds.
set -eu
root=$1 state=$2 base=$3 patterns=$4 what=$5 limit=$6
work="$state/take"
if [ -e "$work" ] || [ -L "$work" ]; then rm -rf "$work"; fi
mkdir -p "$work/git/objects/info" "$work/git/refs" "$work/git/info"
echo 'ref: refs/heads/none' >"$work/git/HEAD"
objects="$root/.git/objects"
if [ -d "$state/sent.git/objects" ]; then objects="$state/sent.git/objects"; fi
printf '%s\n' "$objects" >"$work/git/objects/info/alternates"
printf '%s\n' "$patterns" >"$work/git/info/exclude"
index_git() {
  git --git-dir="$work/git" --work-tree="$root" -c core.bare=false -c core.compression=0 \
    -c core.autocrlf=false -c core.quotePath=true -c core.excludesFile=/dev/null "$@"
}
cd "$root"
from_base() {
  rm -f "$work/git/index"
  index_git read-tree "$base"
}
add() { index_git add --all --ignore-errors . >"$work/warnings" 2>&1; }
difference() { index_git diff-index --cached --no-renames --no-color "$@" "$base"; }
added_repository() { difference --raw | grep -q '^:000000 160000 '; }
cp -p "$state/base-index" "$work/git/index" 2>/dev/null || from_base
# git warns about each nested repository in the tree.
if ! add || { [ -s "$work/warnings" ] && added_repository; }; then
  # A diff cannot contain a nested repository, so exclude it.
  find . -mindepth 2 -name .git -prune -print |
    sed 's|^\.||; s|/\.git$||; s|[][*?\\]|\\&|g' >>"$work/git/info/exclude"
  from_base
  # 1: some files cannot be read. With other codes, the index was not written, for example because the disk is full.
  add || [ $? -eq 1 ]
fi
if [ "$what" = names ]; then
  difference --name-only --diff-filter=d | head -n "$limit"
  exit
fi
{
  difference --binary --full-index --no-ext-diff --no-textconv --src-prefix=a/ --dst-prefix=b/ -p ||
    echo "$?" >"$work/failed"
} | head -c "$((limit + 1))"
[ ! -e "$work/failed" ]
