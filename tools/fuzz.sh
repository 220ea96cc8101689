#!/usr/bin/env bash
# fuzz.sh [DIRECTORY...]: runs each fuzz test below the directories, or of the workspace, for
# AKRI_FUZZ_TIME. A failing input is written to testdata/fuzz, which `go test` runs. AKRI_FUZZ_KEEP=N
# also keeps up to N inputs with new coverage there.
set -euo pipefail

keep() { # package directory, function
  local found target="$1/testdata/fuzz/$2"
  found=$(go env GOCACHE)/fuzz/$(go list "./$1")/$2
  [ -d "$found" ] || return 0
  mkdir -p "$target"
  # Inputs of all sizes up to 2 KiB.
  find "$found" -type f -size -2k -printf '%s %p\n' | sort -n | cut -d' ' -f2- |
    awk -v n="$AKRI_FUZZ_KEEP" '{ all[NR] = $0 } END { for (i = 1; i <= n && i <= NR; i++) print all[int((i - 0.5) * (NR > n ? NR / n : 1)) + 1] }' |
    sort -u | xargs -r cp -t "$target"
}

failed=()
for package in $(git grep -l --untracked '^func Fuzz' -- "${@:-.}" | grep '_test\.go$' | xargs -n1 dirname | sort -u); do
  for function in $(go test -vet=off -list '^Fuzz' "./$package" | grep '^Fuzz'); do
    echo "== $package $function"
    go test -vet=off -run '^$' -fuzz "^$function\$" -fuzztime "${AKRI_FUZZ_TIME:-10s}" "./$package" || failed+=("$package $function")
    [ -z "${AKRI_FUZZ_KEEP:-}" ] || keep "$package" "$function"
  done
done
[ ${#failed[@]} -eq 0 ] || { printf 'failed: %s\n' "${failed[@]}" >&2; exit 1; }
