// Renders a Helm chart as `helm template` does, and checks the result against Kubernetes' types.
//
//	chart render DIRECTORY <VALUES    the documents as a JSON list, NOTES.txt as a string at its end
//	chart package DIRECTORY OUTPUT    writes NAME-VERSION.tgz as `helm package` does, and prints its path
//
// An unknown or duplicate field, a value that the schema refuses and a failed template end it with a message.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

var types = map[string]func() any{
	"v1/ConfigMap":                            func() any { return &core.ConfigMap{} },
	"v1/Service":                              func() any { return &core.Service{} },
	"v1/ServiceAccount":                       func() any { return &core.ServiceAccount{} },
	"apps/v1/StatefulSet":                     func() any { return &apps.StatefulSet{} },
	"networking.k8s.io/v1/NetworkPolicy":      func() any { return &networking.NetworkPolicy{} },
	"policy/v1/PodDisruptionBudget":           func() any { return &policy.PodDisruptionBudget{} },
	"monitoring.coreos.com/v1/ServiceMonitor": func() any { return &monitoring.ServiceMonitor{} },
}

func render(directory string, values map[string]any) ([]any, error) {
	chart, err := loader.LoadDir(directory)
	if err != nil {
		return nil, err
	}
	options := common.ReleaseOptions{Name: "flights", Namespace: "streaming", Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(chart, values, options, nil)
	if err != nil {
		return nil, err
	}
	files, err := engine.Engine{Strict: true}.Render(chart, all)
	if err != nil {
		return nil, err
	}
	names := []string{}
	for name := range files {
		names = append(names, name)
	}
	sort.Strings(names)
	found, notes := []any{}, ""
	for _, name := range names {
		if strings.HasSuffix(name, "NOTES.txt") {
			notes = files[name]
			continue
		}
		for _, text := range strings.Split(files[name], "\n---\n") {
			if strings.TrimSpace(text) == "" {
				continue
			}
			document, err := check(text)
			if err != nil {
				return nil, fmt.Errorf("%s: %w\n%s", name, err, text)
			}
			if document != nil {
				found = append(found, document)
			}
		}
	}
	return append(found, notes), nil
}

func check(text string) (any, error) {
	document := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(text), &document); err != nil {
		return nil, err
	}
	if len(document) == 0 {
		return nil, nil
	}
	kind := fmt.Sprintf("%v/%v", document["apiVersion"], document["kind"])
	empty, known := types[kind]
	if !known {
		return nil, fmt.Errorf("%s is not among the types of this program", kind)
	}
	if err := yaml.UnmarshalStrict([]byte(text), empty()); err != nil {
		return nil, err
	}
	return document, nil
}

func run() error {
	if len(os.Args) == 4 && os.Args[1] == "package" {
		chart, err := loader.LoadDir(os.Args[2])
		if err != nil {
			return err
		}
		path, err := chartutil.Save(chart, os.Args[3])
		fmt.Println(path)
		return err
	}
	if len(os.Args) != 3 || os.Args[1] != "render" {
		return fmt.Errorf("usage: chart render DIRECTORY <VALUES | chart package DIRECTORY OUTPUT")
	}
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	values := map[string]any{}
	if err := yaml.Unmarshal(text, &values); err != nil {
		return err
	}
	documents, err := render(os.Args[2], values)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(documents)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
