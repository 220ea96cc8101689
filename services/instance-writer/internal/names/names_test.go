package names_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/instance-writer/internal/names"
)

func owners(namespace string, from, to int) []*akriv0.Configuration {
	var all []*akriv0.Configuration
	for i := from; i < to; i++ {
		all = append(all, &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("%s.configuration-number-%06d", namespace, i),
		}})
	}
	return all
}

// The record is bounded, no namespace fills it, and what it has stays.
func TestRecordIsBounded(t *testing.T) {
	record := names.Add(nil, owners("honest", 0, 1500))
	require.Len(t, record, 1500)
	record = names.Add(record, owners("hostile", 0, 50_000))
	require.Less(t, len(record), 6000, "a namespace has a share")
	record = names.Add(record, owners("later", 0, 1000))
	require.Equal(t, "later", record["later-configuration-number-000999"])
	for i := range 20 {
		record = names.Add(record, owners(fmt.Sprint("hostile-", i), 0, 50_000))
	}
	bytes := 0
	for name, namespace := range record {
		bytes += len(name) + len(namespace)
	}
	require.Less(t, bytes, 1<<20)
	require.Equal(t, "honest", record["honest-configuration-number-001499"])
	require.Equal(t, record, names.Add(record, append(owners("hostile", 0, 10), owners("honest", 0, 10)...)))
}
