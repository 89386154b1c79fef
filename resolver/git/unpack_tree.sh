# Arguments: work tree, Patchwright's directory, base commit, tree, ignore patterns. After this script has run,
# `git status` hides the files that take_diff.sh excludes.
set -eu
root=$1 state=$2 base=$3 tree=$4 patterns=$5
cd "$root"
git init --quiet --template= --initial-branch=work .
git config user.name "Patchwright agent"
git config user.email "agent@patchwright.invalid"
mkdir -p .git/info
printf '%s\n' "$patterns" >.git/info/exclude
git index-pack --stdin <"$state/pack" >"$state/packed"
if [ -s "$state/shallow" ]; then cp "$state/shallow" .git/shallow; fi
git update-ref refs/heads/work "$base"
git update-ref -z --stdin <"$state/tag"
git read-tree --reset -u "$tree"
git reset --quiet
cp -p .git/index "$state/base-index"
rm "$state/pack" "$state/packed" "$state/shallow" "$state/tag"
