package v0_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// A name does not move while Configurations of all namespaces are created and deleted, because each
// name that was in use is recorded. Only the removal of a record lets another namespace have it.
func TestNamesDoNotMove(t *testing.T) {
	names := []string{"camera", "camera-8120fe", "camera-8120fex55e2ca", "a.b", "a-b", "other"}
	recorded, existing := map[string]string{}, map[string]*akriv0.Configuration{}
	for step := range 5000 {
		name, namespace := names[rand.Intn(len(names))], fmt.Sprint("tenant-", rand.Intn(3))
		switch key := namespace + "/" + name; {
		case rand.Intn(100) == 0:
			delete(recorded, akriv0.NameKey(name)) // by an administrator
		case existing[key] != nil:
			delete(existing, key)
		default:
			existing[key] = &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: name, CreationTimestamp: metav1.NewTime(time.Unix(int64(step), 0)),
			}}
		}

		var all []*akriv0.Configuration
		for _, configuration := range existing {
			all = append(all, configuration)
		}
		owners := akriv0.Owners(recorded, all)
		for i, owner := range owners {
			for _, other := range owners[:i] {
				require.False(t, namesConflict(owner.Name, other.Name), "%s and %s", owner.Name, other.Name)
			}
			for name, namespace := range recorded {
				require.False(t, namespace != owner.Namespace && namesConflict(name, owner.Name), "%s of %s", name, namespace)
			}
		}
		for _, owner := range owners {
			recorded[akriv0.NameKey(owner.Name)] = owner.Namespace
		}
	}
}

func TestOwners(t *testing.T) {
	created := func(second int64, namespace, name string) *akriv0.Configuration {
		return &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, CreationTimestamp: metav1.NewTime(time.Unix(second, 0)),
		}}
	}
	second, again := created(2, "b", "camera"), created(3, "a", "camera")
	both := []*akriv0.Configuration{second, again}
	recorded := map[string]string{"camera": "a"}
	require.Equal(t, []*akriv0.Configuration{again}, akriv0.Owners(recorded, both), "created again")
	require.Empty(t, akriv0.Owners(recorded, both[:1]), "deleted")
	require.Equal(t, []*akriv0.Configuration{second}, akriv0.Owners(nil, both), "without record: the oldest")
	require.Empty(t, akriv0.Owners(recorded, []*akriv0.Configuration{created(1, "b", "camera-8120fe")}), "named like an Instance")
	require.Empty(t, akriv0.Owners(map[string]string{"camera-8120fe": "a"}, both[:1]), "has an Instance of that name")
}
