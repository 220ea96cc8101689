package e2e_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
)

// explanation is the output of `kubectl akri explain -o json`.
type explanation struct{ explain.Explanation }

// cause returns the cause with the id, which must be that of the first broken link, or that of
// another link if none is broken.
func (e explanation) cause(id string) (explain.Cause, error) {
	var ids []explain.CauseID
	for _, state := range []explain.State{explain.Broken, explain.Partly, explain.NoneFound, explain.Waiting, explain.Works} {
		for _, link := range e.Links {
			if link.State != state {
				continue
			}
			for _, c := range link.Causes {
				if string(c.ID) == id {
					return c, nil
				}
				ids = append(ids, c.ID)
			}
			if state == explain.Broken {
				return explain.Cause{}, fmt.Errorf("the causes are %v", ids)
			}
		}
	}
	return explain.Cause{}, fmt.Errorf("the causes are %v", ids)
}

// brokenCluster is a state of the cluster and its explanation.
type brokenCluster struct {
	// prepare breaks the cluster, unless it is broken already.
	prepare func(*testing.T)
	// object is the kind, the name and, optionally, flags of what is explained.
	object string
	cause  string
	// message and remedy are parts of the cause's message and of a command, with the chart value if
	// one causes the fault.
	message, remedy string
	// state is that of the verdict with the cause, Broken if it is empty.
	state explain.State
	// subject is that of the verdict. By default it is the object or, of a Configuration, what the
	// condition is about.
	subject akriv0.Subject
	// began is when the cluster was broken, for the time until the cause is stated. It is zero if
	// prepare breaks the cluster.
	began time.Time

	// The others are where the cause is stated without a question. checkEverywhere requires one of
	// condition, counted and deleted, or the reason why there is none.

	// condition is DevicesWorking or BrokersWorking if that states the cause. The Configuration is
	// the object, unless it is named here.
	condition, configuration string
	// conditionState is the verdict of the condition, if it is not that on the subject.
	conditionState explain.State
	// counted is the kind of the subject in the metric of broker-controller from which an alert
	// follows.
	counted string
	// deleted is the kind and name of an object that broker-controller may not read. The metrics of
	// instance-writer state that it does not exist.
	deleted [2]string
	// asked is why only the command line and the console state the cause.
	asked string
}

// podOfUser is why nothing states without a question that a Pod does not run.
const podOfUser = "Akri has no conditions, metrics and alerts about Pods of users"

// checkEverywhere checks that all that can state the cause does, with the subject and its verdict:
// conditions, metrics and the series of alerts, `kubectl akri explain` and `check`, and the
// console.
func (b brokenCluster) checkEverywhere(t *testing.T) {
	t.Helper()
	b = b.complete(t)
	b.awaitUnprompted(t, b.check(t))
	b.awaitCheck(t)
	awaitPages(t, b.pages()...)
}

// complete adds the defaults, and requires the rest.
func (b brokenCluster) complete(t *testing.T) brokenCluster {
	t.Helper()
	for what, text := range map[string]string{"cause": b.cause, "message": b.message, "remedy": b.remedy} {
		require.NotEmpty(t, text, "name the %s", what)
	}
	isStated := b.condition != "" || b.counted != "" || b.deleted[0] != ""
	require.NotEqual(t, isStated, b.asked != "", "name what states the cause without a question, or why nothing does")

	if b.began.IsZero() {
		b.began = time.Now()
	}
	b.state = cmp.Or(b.state, explain.Broken)
	b.conditionState = cmp.Or(b.conditionState, b.state)
	if b.subject.Kind == "" {
		b.subject = b.defaultSubject(t)
	}
	return b
}

func (b brokenCluster) defaultSubject(t *testing.T) akriv0.Subject {
	t.Helper()
	fields := strings.Fields(b.object)
	namespace, _ := b.namespacedName()
	subject := akriv0.Subject{Namespace: namespace, Name: fields[1]}
	switch {
	case fields[0] == "pod":
		subject.Kind = "Pod"
	case fields[0] == "instance":
		subject.Kind = "Instance"
	case b.condition == akriv0.ConditionDevicesWorking:
		subject.Kind = explain.SubjectDevices
	case b.condition == akriv0.ConditionBrokersWorking:
		subject.Kind = explain.SubjectBrokers
	default:
		require.FailNow(t, "name the subject of the verdict on "+b.object)
	}
	return subject
}

// check waits for the explanation, and returns the cause. The API server may answer lists of the
// command from a cache that is some milliseconds older than what prepare has seen. The verdict on
// the subject, if that is known, can follow: devices that were just found wait for the kubelet.
func (b brokenCluster) check(t *testing.T) (explained explainedCause) {
	t.Helper()
	if b.began.IsZero() {
		b.began = time.Now()
	}
	if b.prepare != nil {
		b.prepare(t)
	}
	await(t, "cause "+b.cause, func(ctx context.Context) error {
		text, err := kubectlAkri(ctx, append([]string{"explain", "--output=json"}, strings.Fields(b.object)...)...)
		if err != nil {
			return err
		}
		explained = explainedCause{}
		require.NoError(t, json.Unmarshal([]byte(text), &explained.explanation), "%s", text)
		if explained.Cause, err = explained.cause(b.cause); err != nil {
			return fmt.Errorf("%w: %s", err, text)
		}
		return b.checkVerdict(explained)
	})
	recordVerdict(t, b.cause, time.Since(b.began))
	require.Contains(t, explained.Message, b.message)
	requireRemedy(t, b.remedy, explained.Remedies)
	return explained
}

// explainedCause is an explanation and the cause that is looked for.
type explainedCause struct {
	explanation
	explain.Cause
}

func requireRemedy(t *testing.T, command string, remedies []explain.Remedy) {
	t.Helper()
	require.True(t, slices.ContainsFunc(remedies, func(r explain.Remedy) bool {
		return strings.Contains(r.Command, command)
	}), "no command has %q: %+v", command, remedies)
}

// checkVerdict returns an error unless the verdict on the subject has the cause. An explanation has
// no verdicts on services and nodes, but links that do not work.
func (b brokenCluster) checkVerdict(explained explainedCause) error {
	hasCause := func(causes []explain.Cause) bool {
		return slices.ContainsFunc(causes, func(c explain.Cause) bool { return c.ID == explained.ID })
	}
	for _, verdict := range explained.Verdicts {
		if verdict.Subject == b.subject && (verdict.State != b.state || !hasCause(verdict.Causes)) {
			return fmt.Errorf("the verdict is not %s with the cause: %+v", b.state, verdict)
		}
	}

	switch b.subject.Kind {
	case "": // only the cause is looked for
		return nil
	case explain.SubjectDevices, explain.SubjectBrokers, "Instance", "Pod":
		if !slices.ContainsFunc(explained.Verdicts, func(v explain.Verdict) bool { return v.Subject == b.subject }) {
			return fmt.Errorf("no verdict is on %+v: %+v", b.subject, explained.Verdicts)
		}
		return nil
	}
	for _, link := range explained.Links {
		if hasCause(link.Causes) && link.State != explain.Broken && link.State != explain.Partly {
			return fmt.Errorf("the link with the cause works: %+v", link)
		}
	}
	return nil
}

// awaitUnprompted waits until the cause is stated without a question.
func (b brokenCluster) awaitUnprompted(t *testing.T, explained explainedCause) {
	t.Helper()
	if b.condition != "" {
		b.awaitCondition(t, explained)
		recordVerdict(t, b.condition+" with "+b.cause, time.Since(b.began))
		// An alert on a service follows from what is counted. NoneFound is no fault, unless the
		// Configuration expects devices.
		if b.counted != "service" && b.state != explain.NoneFound {
			b.awaitAlert(t)
		}
	}
	if b.counted != "" {
		awaitCount(t, b.counted, func(states map[explain.State]int) bool { return states[b.state] > 0 })
		recordVerdict(t, "metrics of "+b.cause, time.Since(b.began))
	}
	if b.deleted[0] != "" {
		awaitDeleted(t, b.deleted)
		recordVerdict(t, "metrics of "+b.cause, time.Since(b.began))
	}
}

// awaitCondition waits until the condition states the cause with a remedy, and the column of
// `kubectl get` the verdict.
func (b brokenCluster) awaitCondition(t *testing.T, explained explainedCause) {
	t.Helper()
	namespace, name := b.namespacedName()
	awaitObject(t, b.condition+" with "+b.cause, akri.Configurations.In(namespace), name, func(c *akriv0.Configuration) error {
		condition := meta.FindStatusCondition(c.Status.Conditions, b.condition)
		if condition == nil || condition.Status != metav1.ConditionFalse || condition.Reason != string(b.conditionState) ||
			!strings.Contains(condition.Message, b.cause+": ") || !strings.Contains(condition.Message, b.message) {
			return fmt.Errorf("the condition is %+v", condition)
		}
		if b.conditionState != explain.NoneFound && !slices.ContainsFunc(explained.Remedies, func(r explain.Remedy) bool {
			return strings.Contains(condition.Message, cmp.Or(r.Command, r.Text))
		}) {
			return fmt.Errorf("the condition has no remedy: %+v", condition)
		}
		return nil
	})
	await(t, "the column of "+b.condition, func(context.Context) error {
		if shown := column(t, namespace, name, verdictColumns[b.condition]); shown != string(b.conditionState) {
			return fmt.Errorf("the column shows %q", shown)
		}
		return nil
	})
}

// verdictColumns are the columns of `kubectl get akric` by the condition that they show.
var verdictColumns = map[string]string{akriv0.ConditionDevicesWorking: "STATE", akriv0.ConditionBrokersWorking: "BROKERS"}

// column returns what a column of `kubectl get akric` shows for the Configuration.
func column(t *testing.T, namespace, name, title string) string {
	t.Helper()
	text, err := akri.Kubectl(t.Context(), "", "get", "akric", name, "--namespace="+namespace)
	require.NoError(t, err)
	header, row, _ := strings.Cut(text, "\n")
	i := strings.Index(header, " "+title+" ") + 1
	require.Positive(t, i, "%s", text)
	value, _, _ := strings.Cut(row[min(i, len(row)):], " ")
	return value
}

// awaitAlert waits until the metrics of instance-writer have the series from which the alert on the
// devices or the brokers of the Configuration follows.
func (b brokenCluster) awaitAlert(t *testing.T) {
	t.Helper()
	namespace, name := b.namespacedName()
	await(t, "the series of the alert for "+name, func(ctx context.Context) error {
		var reason string
		err := eachValue(ctx, "instance-writer", "akri_configuration_condition", func(labels map[string]string, value float64) {
			if labels["configuration_namespace"] == namespace && labels["configuration"] == name &&
				labels["condition"] == b.condition && labels["status"] == string(metav1.ConditionFalse) && value == 1 {
				reason = labels["reason"]
			}
		})
		if err == nil && reason != string(b.conditionState) {
			err = fmt.Errorf("the reason is %q", reason)
		}
		return err
	})
}

// namespacedName returns the namespace and the name of the Configuration.
func (b brokenCluster) namespacedName() (namespace, name string) {
	namespace, name = "default", cmp.Or(b.configuration, strings.Fields(b.object)[1])
	if _, other, found := strings.Cut(b.object, "--namespace="); found {
		namespace = other
	}
	return namespace, name
}

// awaitCheck waits until `kubectl akri check` fails for the subject with the cause and the remedy.
func (b brokenCluster) awaitCheck(t *testing.T) {
	t.Helper()
	name := b.checkName()
	if name == "" || b.state != explain.Broken && b.state != explain.Partly {
		return
	}
	var found checkResult
	await(t, "a failed check of "+name, func(ctx context.Context) error {
		results, err := checkResults(ctx)
		for _, found = range results {
			if found.Name == name && found.Outcome == "Failed" && strings.Contains(found.Message, b.message) {
				return nil
			}
		}
		return errors.Join(fmt.Errorf("the results are %+v", results), err)
	})
	requireRemedy(t, b.remedy, found.Remedies)
}

// checkName returns the name of the result of `kubectl akri check`, or nothing if it is not about
// the subject.
func (b brokenCluster) checkName() string {
	switch b.subject.Kind {
	case "Pod":
		return ""
	case "Node":
		return "Node " + b.subject.Name
	case "Instance":
		namespace, name := b.namespacedName()
		return explain.SubjectDevices + " of " + namespace + "/" + name
	case explain.SubjectDevices, explain.SubjectBrokers:
		return b.subject.Kind + " of " + b.subject.Namespace + "/" + b.subject.Name
	default:
		return "services"
	}
}

// pages are those of the console that show the verdict with the cause, and the remedy.
func (b brokenCluster) pages() []page {
	title, path := b.subject.Kind+" "+b.subject.Name, "/services"
	if namespace := b.subject.Namespace; namespace != "" {
		title = b.subject.Kind + " " + namespace + "/" + b.subject.Name
	}
	switch b.subject.Kind {
	case explain.SubjectDevices, explain.SubjectBrokers:
		path = "/configurations/" + b.subject.Namespace + "/" + b.subject.Name
	case "Instance":
		path = "/devices/" + b.subject.Namespace + "/" + b.subject.Name
	case "Pod":
		path = "/pods/" + b.subject.Namespace + "/" + b.subject.Name
	case "Node":
		path = "/nodes/" + b.subject.Name
	}

	line := fmt.Sprintf(`<li class="%s"><span [^>]*>%s</span> <a [^>]*>%s</a> [^<]*%s[^<]*%s`, strings.ToLower(string(b.state)), b.state.Word(),
		regexp.QuoteMeta(title), regexp.QuoteMeta(b.cause+": "), regexp.QuoteMeta(b.message))
	return []page{
		{path: "/problems?q=" + url.QueryEscape(b.subject.Name), matches: line},
		{path: path, parts: []string{b.message, b.remedy}},
	}
}
