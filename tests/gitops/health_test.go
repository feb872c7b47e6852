// The health checks of examples/gitops, run as Argo CD and Flux run them, on the statuses of this folder.
package gitops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	"github.com/fluxcd/pkg/apis/kustomize"
	"github.com/fluxcd/pkg/runtime/cel"
	lua "github.com/yuin/gopher-lua"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	luajson "layeh.com/gopher-json"
	"sigs.k8s.io/yaml"
)

const (
	argoFile = "../../examples/gitops/argocd-cm.yaml"
	fluxFile = "../../examples/gitops/flux-kustomization.yaml"
	argoKey  = "resource.customizations.health.mczk.io_MultiClusterZooKeeper"
)

// A state is an object, and what both tools must answer to it.
type state struct {
	name     string
	Expected struct{ ArgoCD, Flux string }
	Object   unstructured.Unstructured
}

// read refuses a field that the type does not have.
func read(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = yaml.UnmarshalStrict(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func states(t *testing.T) []state {
	t.Helper()
	files, err := filepath.Glob("*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("the folder has no states: %v", err)
	}
	all := make([]state, 0, len(files))
	for _, file := range files {
		one := state{name: strings.TrimSuffix(file, ".yaml")}
		read(t, file, &one)
		all = append(all, one)
	}
	return all
}

// script is the health check of the ConfigMap.
func script(t *testing.T) string {
	t.Helper()
	var configMap corev1.ConfigMap
	read(t, argoFile, &configMap)
	if configMap.Data[argoKey] == "" {
		t.Fatalf("%s has no key %s", argoFile, argoKey)
	}
	return configMap.Data[argoKey]
}

// expressions are the health checks of the Kustomization.
func expressions(t *testing.T) kustomize.HealthCheckExpressions {
	t.Helper()
	var kustomization kustomizev1.Kustomization
	read(t, fluxFile, &kustomization)
	checks := kustomization.Spec.HealthCheckExprs
	if len(checks) != 1 || checks[0].APIVersion != "mczk.io/v1alpha1" || checks[0].Kind != "MultiClusterZooKeeper" {
		t.Fatalf("%s must have one check, of MultiClusterZooKeeper: %v", fluxFile, checks)
	}
	return checks[0].HealthCheckExpressions
}

// argo answers as Argo CD does (util/lua/lua.go): the same interpreter, with the libraries that a script of the ConfigMap
// gets, and one second. Its library `os` is left out: the script must not need it.
func argo(script string, object *unstructured.Unstructured) (string, error) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{
		lua.LoadLibName: lua.OpenPackage, lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable,
	} {
		if err := state.CallByParam(lua.P{Fn: state.NewFunction(open), Protect: true}, lua.LString(name)); err != nil {
			return "", err
		}
	}
	limited, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	state.SetContext(limited)
	text, err := json.Marshal(object.Object)
	if err != nil {
		return "", err
	}
	value, err := luajson.Decode(state, text)
	if err != nil {
		return "", err
	}
	state.SetGlobal("obj", value)
	if err := state.DoString(script); err != nil {
		return "", err
	}
	answer, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return "", fmt.Errorf("the script must return a table, not %s", state.Get(-1).Type())
	}
	health, message := answer.RawGetString("status"), answer.RawGetString("message")
	if lua.LVAsString(message) == "" {
		return "", errors.New("the script must return a message")
	}
	return lua.LVAsString(health), nil
}

// flux answers as Flux does, by its own evaluator. Of an object without a status its expressions fail. Flux then polls on,
// as if the answer were InProgress.
func flux(checks kustomize.HealthCheckExpressions, object *unstructured.Unstructured) (string, error) {
	evaluator, err := cel.NewStatusEvaluator(&checks)
	if err != nil {
		return "", err
	}
	result, err := evaluator.Evaluate(context.Background(), object)
	if _, reported := object.Object["status"]; err != nil && !reported {
		return status.InProgressStatus.String(), nil
	}
	if err != nil {
		return "", err
	}
	return result.Status.String(), nil
}

// wrong names the states whose answer is not the expected one.
func wrong(t *testing.T, answer func(*state) (answered string, expected string, err error)) (names []string) {
	t.Helper()
	for _, state := range states(t) {
		if answered, expected, err := answer(&state); err != nil || answered != expected {
			names = append(names, fmt.Sprintf("%s: %q instead of %q, error %v", state.name, answered, expected, err))
		}
	}
	return names
}

func wrongWithScript(t *testing.T, script string) []string {
	t.Helper()
	return wrong(t, func(state *state) (string, string, error) {
		answered, err := argo(script, &state.Object)
		return answered, state.Expected.ArgoCD, err
	})
}

func wrongWithExpressions(t *testing.T, checks kustomize.HealthCheckExpressions) []string {
	t.Helper()
	return wrong(t, func(state *state) (string, string, error) {
		answered, err := flux(checks, &state.Object)
		return answered, state.Expected.Flux, err
	})
}

func TestArgoCD(t *testing.T) {
	for _, name := range wrongWithScript(t, script(t)) {
		t.Error(name)
	}
}

func TestFlux(t *testing.T) {
	for _, name := range wrongWithExpressions(t, expressions(t)) {
		t.Error(name)
	}
}

// Without one of these lines the script is wrong in a state: the states cover every rule.
func TestEveryRuleOfTheScriptIsNeeded(t *testing.T) {
	for _, rule := range []string{
		"obj.metadata.deletionTimestamp ~= nil",
		"status.observedGeneration ~= obj.metadata.generation",
		"failures[progressing.reason]",
		`progressing.reason == "Paused"`,
		`progressing.status == "True"`,
		`degraded ~= nil and degraded.status == "True"`,
		`ready.status == "True" and progressing.reason == "Done"`,
	} {
		checkNeeded(t, rule, script(t), "false", func(broken string) []string { return wrongWithScript(t, broken) })
	}
}

// Without one of these parts the expressions are wrong in a state.
func TestEveryRuleOfTheExpressionsIsNeeded(t *testing.T) {
	checks := expressions(t)
	with := func(inProgress string) []string {
		broken := checks
		broken.InProgress = inProgress
		return wrongWithExpressions(t, broken)
	}
	checkNeeded(t, "c.type == 'Ready' && c.status == 'True'", checks.InProgress, "true", with)
	checkNeeded(t, "c.reason in ['Done', 'ReplacingAuthority']", checks.InProgress, "true", with)
	checkNeeded(t, "'ReplacingAuthority'", checks.InProgress, "'Other'", with)
	checkNeeded(t, "'ClusterFailed'", checks.InProgress, "'Other'", with)
	without := checks
	without.Failed = "false"
	if len(wrongWithExpressions(t, without)) == 0 {
		t.Error("no state needs the expression `failed`")
	}
}

func checkNeeded(t *testing.T, rule, text, replacement string, answers func(string) []string) {
	t.Helper()
	if strings.Count(text, rule) != 1 {
		t.Errorf("%q must be there once: change the rules of this test with those of examples/gitops", rule)
	} else if len(answers(strings.Replace(text, rule, replacement, 1))) == 0 {
		t.Errorf("no state needs the rule %q", rule)
	}
}
