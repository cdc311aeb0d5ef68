// SPDX-License-Identifier: Apache-2.0

package charttest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Schemas are Kubernetes' own OpenAPI schemas, of the release that the local cluster runs, as JSON schemas. They need
// no API server.
type Schemas struct {
	compiler *jsonschema.Compiler
	kinds    map[schema.GroupVersionKind]string
}

// schemasURL names the document; nothing is fetched from there.
const schemasURL = "file:///kubernetes.json"

// quantity may be written as a number, which its schema does not say.
const quantity = "io.k8s.apimachinery.pkg.api.resource.Quantity"

// LoadSchemas reads them out of Kubernetes' module, which is downloaded once.
func LoadSchemas(tb testing.TB) *Schemas {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), "go", "mod", "download", "-json", "k8s.io/kubernetes")
	cmd.Dir = filepath.Join(Root(tb), "hack", "tools", "kubernetes")
	output, err := cmd.Output()
	if err != nil {
		tb.Fatalf("fetch k8s.io/kubernetes: %v\n%s", err, output)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(output, &module); err != nil {
		tb.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(module.Dir, "api", "openapi-spec", "swagger.json"))
	if err != nil {
		tb.Fatal(err)
	}
	schemas, err := newSchemas(text)
	if err != nil {
		tb.Fatal(err)
	}
	return schemas
}

func newSchemas(text []byte) (*Schemas, error) {
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read the schemas: %w", err)
	}
	root, _ := document.(map[string]any)
	definitions, _ := root["definitions"].(map[string]any)
	if len(definitions) == 0 {
		return nil, errors.New("read the schemas: there are no definitions")
	}
	s := &Schemas{compiler: jsonschema.NewCompiler(), kinds: map[schema.GroupVersionKind]string{}}
	for name, definition := range definitions {
		members, ok := definition.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("read the schemas: definition %s is a %T", name, definition)
		}
		tighten(members)
		if name == quantity {
			members["type"] = []any{"string", "number"}
		}
		// A kind has one; the options of requests have one for each group.
		if kinds, ok := members["x-kubernetes-group-version-kind"].([]any); ok && len(kinds) == 1 {
			gvk := kinds[0].(map[string]any)
			s.kinds[schema.GroupVersionKind{
				Group: gvk["group"].(string), Version: gvk["version"].(string), Kind: gvk["kind"].(string),
			}] = name
		}
	}
	if err := s.compiler.AddResource(schemasURL, map[string]any{"definitions": definitions}); err != nil {
		return nil, fmt.Errorf("read the schemas: %w", err)
	}
	return s, nil
}

// tighten forbids members that a schema does not name, and says in JSON schema what Kubernetes says by a format.
func tighten(s map[string]any) {
	if properties, ok := s["properties"].(map[string]any); ok {
		if _, said := s["additionalProperties"]; !said {
			s["additionalProperties"] = false
		}
		for _, property := range properties {
			if p, ok := property.(map[string]any); ok {
				tighten(p)
			}
		}
	}
	for _, member := range []string{"items", "additionalProperties"} {
		if inner, ok := s[member].(map[string]any); ok {
			tighten(inner)
		}
	}
	if s["format"] == "int-or-string" {
		s["type"] = []any{"string", "integer"}
	}
}

// Check validates an object. A kind that Kubernetes does not have is an error.
func (s *Schemas) Check(object *unstructured.Unstructured) error {
	name, ok := s.kinds[object.GroupVersionKind()]
	if !ok {
		return fmt.Errorf("%s %s: Kubernetes has no such kind", object.GroupVersionKind(), object.GetName())
	}
	compiled, err := s.compiler.Compile(schemasURL + "#/definitions/" + name)
	if err != nil {
		return fmt.Errorf("compile the schema of %s: %w", name, err)
	}
	text, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	if err := compiled.Validate(value); err != nil {
		return fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}
