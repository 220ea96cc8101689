module akri.sh/deploy/samples/broker

go 1.26.0
