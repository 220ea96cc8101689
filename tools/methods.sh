#!/usr/bin/env bash
# methods.sh SERVICE...: says who looks methods up by a name that the linker cannot know, and fails if anybody does.
#
# Then the linker must keep every exported method of every type: a service is a sixth larger, or a quarter with client-go, and so
# is its share of a small node's memory.
set -euo pipefail
cd "$(dirname "$0")/.."

for service in "$@"; do
    # The linker says what leads to what, and marks functions that look methods up.
    edges=$(go build -tags grpcnotrace,nethttpomithttp2 -ldflags=-dumpdep -o /dev/null "./services/$service/cmd/$service" 2>&1)
    grep -q '^main.main ' <<<"$edges" || { echo "$service: the linker does not say what leads to what:"; head -5 <<<"$edges"; exit 1; }
    if callers=$(grep -oE '^[^ ]+ -> [^ ]+ <ReflectMethod>$' <<<"$edges"); then
        echo "$service: something looks methods up by a name that the linker cannot know (text/template and some flag libraries do):"
        head -5 <<<"$callers"
        exit 1
    fi
done
