module akri.sh/tools/cluster

go 1.26.0
