#!/usr/bin/env bash
# commits.sh BASE: checks the messages of the commits after BASE. Without BASE in the history, as in
# a shallow clone, there is nothing to check.
set -euo pipefail

base=$1
git merge-base --is-ancestor "$base" HEAD 2>/dev/null || { echo "commit messages are not checked: $base is not in the history"; exit 0; }
failed=0
problem() { echo "$(git log -1 --format='%h %s' "$1"): $2" >&2; failed=1; }
for commit in $(git rev-list --no-merges "$base..HEAD"); do
  subject=$(git log -1 --format=%B "$commit" | head -1)
  [ ${#subject} -le 72 ] || problem "$commit" "the subject has ${#subject} characters; shorten it to 72"
  [[ $subject =~ ^[a-z0-9./-]+(, [a-z0-9./-]+)*:\ [^\ ].*[^.]$ ]] || problem "$commit" "the subject must be \"area: summary\", without a full stop"
  [[ $subject != *\;* ]] || problem "$commit" "the subject has several topics; make one commit for each"
  [ -z "$(git log -1 --format=%B "$commit" | sed -n 2p)" ] || problem "$commit" "the second line must be empty"
  ! git log -1 --format=%b "$commit" | grep -v -e '://' -e '^[A-Za-z-]*: .*<.*>$' | grep -q '.\{73\}' || problem "$commit" "wrap the body at 72 columns"
done
[ $failed = 0 ] || echo "reword the commits with git rebase --interactive" >&2
exit $failed
