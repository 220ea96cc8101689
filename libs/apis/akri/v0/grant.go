package v0

import (
	"fmt"
	"strings"
)

// GrantCommands returns the commands that let a user read and watch one Secret or ConfigMap: the
// first creates the Role, the second binds it.
func GrantCommands(object Subject, user string) []string {
	kind := strings.ToLower(object.Kind)
	role := "akri-" + kind + "-" + object.Name

	binding := "--user=" + user
	if account, isAccount := strings.CutPrefix(user, "system:serviceaccount:"); isAccount {
		binding = "--serviceaccount=" + account
	}

	return []string{
		fmt.Sprintf("kubectl create role %s -n %s --verb=get,watch --resource=%ss --resource-name=%s", role, object.Namespace, kind, object.Name),
		fmt.Sprintf("kubectl create rolebinding %s -n %s --role=%s %s", role, object.Namespace, role, binding),
	}
}
