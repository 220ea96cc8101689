#!/usr/bin/env bash
# release-sign.sh DIR: signs the images and charts whose references are in DIR/*.digest, and attests
# where they come from (SLSA provenance) and what the images are made of (SBOM). In a workflow of
# GitHub, the workflow's identity signs. Elsewhere the environment of cosign selects a key.
set -euo pipefail

dir=$1
# https://slsa.dev/spec/v1.0/provenance with the build type of GitHub's workflows.
repository=${GITHUB_SERVER_URL:-https://github.com}/${GITHUB_REPOSITORY:-local/local}
jq -n \
  --arg repository "$repository" \
  --arg ref "${GITHUB_REF:-}" \
  --arg workflow "${GITHUB_WORKFLOW_REF:-}" \
  --arg event "${GITHUB_EVENT_NAME:-}" \
  --arg run "$repository/actions/runs/${GITHUB_RUN_ID:-}/attempts/${GITHUB_RUN_ATTEMPT:-}" \
  --arg runner "${RUNNER_ENVIRONMENT:-}" \
  --arg commit "$(git -C "$(dirname "$0")" rev-parse HEAD)" \
  --arg go "$(go env GOVERSION)" '{
    buildDefinition: {
      buildType: "https://actions.github.io/buildtypes/workflow/v1",
      externalParameters: {workflow: {
        ref: $ref,
        repository: $repository,
        path: ($workflow | sub("@.*"; "") | split("/") | .[2:] | join("/"))
      }},
      internalParameters: {github: {event_name: $event, runner_environment: $runner}},
      resolvedDependencies: [
        {uri: "git+\($repository)@\($ref)", digest: {gitCommit: $commit}},
        {uri: "pkg:generic/go@\($go | ltrimstr("go"))"}
      ]
    },
    runDetails: {
      builder: {id: "\($repository | sub("/[^/]*/[^/]*$"; ""))/\($workflow)"},
      metadata: {invocationId: $run}
    }
  }' > "$dir/provenance.json"

mapfile -t references < <(cat "$dir"/*.digest)
cosign sign --yes "${references[@]}"
cosign attest --yes --type slsaprovenance1 --predicate "$dir/provenance.json" "${references[@]}"
for sbom in "$dir"/*.spdx.json; do
  cosign attest --yes --type spdxjson --predicate "$sbom" "$(<"${sbom%.spdx.json}.digest")"
done
