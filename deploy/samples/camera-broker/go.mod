module akri.sh/deploy/samples/camera-broker

go 1.26.0

require (
	akri.sh/libs v0.1.0
	github.com/stretchr/testify v1.12.1
	golang.org/x/sync v0.24.0
	golang.org/x/sys v0.49.0
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect

replace (
	akri.sh/libs => ../../../libs
	akri.sh/proto => ../../../proto
)
