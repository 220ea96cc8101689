#!/usr/bin/env bash
# release-provenance.sh: prints where what this workflow builds comes from (SLSA provenance).
set -euo pipefail

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
  }'
