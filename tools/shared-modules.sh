#!/usr/bin/env bash
# shared-modules.sh: lists the modules in tools that are compiled beside the services for a cluster.
set -euo pipefail
echo tools/{akri-image,cluster,containerd,coredns,helm,helm-3,kubernetes}
