#!/usr/bin/env bash
# Fuzzes every Fuzz function below the folders given, or of the workspace, for AKRI_FUZZ_TIME each; what fails is written to its testdata/fuzz, where go test runs
# it from then on. AKRI_FUZZ_KEEP=N also keeps up to N of the inputs there that led somewhere new.
set -euo pipefail

keep() { # package folder, function
  local found target="$1/testdata/fuzz/$2"
  found=$(go env GOCACHE)/fuzz/$(go list "./$1")/$2
  [ -d "$found" ] || return 0
  mkdir -p "$target"
  # Of all sizes, none of them big.
  find "$found" -type f -size -2k -printf '%s %p\n' | sort -n | cut -d' ' -f2- |
    awk -v n="$AKRI_FUZZ_KEEP" '{ all[NR] = $0 } END { for (i = 1; i <= n && i <= NR; i++) print all[int((i - 0.5) * (NR > n ? NR / n : 1)) + 1] }' |
    sort -u | xargs -r cp -t "$target"
}

failed=()
for folder in $(git grep -l --untracked '^func Fuzz' -- "${@:-.}" | grep '_test\.go$' | xargs -n1 dirname | sort -u); do
  for function in $(go test -vet=off -list '^Fuzz' "./$folder" | grep '^Fuzz'); do
    echo "== $folder $function"
    go test -vet=off -run '^$' -fuzz "^$function\$" -fuzztime "${AKRI_FUZZ_TIME:-10s}" "./$folder" || failed+=("$folder $function")
    [ -z "${AKRI_FUZZ_KEEP:-}" ] || keep "$folder" "$function"
  done
done
[ ${#failed[@]} -eq 0 ] || { printf 'failed: %s\n' "${failed[@]}" >&2; exit 1; }
