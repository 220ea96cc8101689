#!/usr/bin/env bash
# commits.sh BASE: checks the messages of the commits after BASE. Without BASE in the history, as in
# a shallow clone, there is nothing to check.
set -euo pipefail

base=$1
git merge-base --is-ancestor "$base" HEAD 2>/dev/null || { echo "commit messages are not checked: $base is not in the history"; exit 0; }
failed=0
problem() { echo "$commit ${lines[0]}: $1" >&2; failed=1; }
trailer='^[A-Za-z-]*: .*<.*>$'
# One process prints all messages: one for each would take most of the time.
while IFS= read -rd '' message; do
  mapfile -t lines <<<"${message#* }"
  commit=${message%% *} subject=${lines[0]}
  [ ${#subject} -le 72 ] || problem "the subject has ${#subject} characters; shorten it to 72"
  [[ $subject =~ ^[a-z0-9./-]+(, [a-z0-9./-]+)*:\ [^\ ].*[^.]$ ]] || problem "the subject must be \"area: summary\", without a full stop"
  [[ $subject != *\;* ]] || problem "the subject has several topics; make one commit for each"
  [ -z "${lines[1]-}" ] || problem "the second line must be empty"
  for line in "${lines[@]:2}"; do
    [ ${#line} -le 72 ] || [[ $line == *://* || $line =~ $trailer ]] || problem "wrap the body at 72 columns: $line"
  done
done < <(git log -z --no-merges --format='%h %B' "$base..HEAD")
[ $failed = 0 ] || echo "reword the commits with git rebase --interactive" >&2
exit $failed
