// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"encoding/json"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
)

// TestPlace: a pod is kept on a node besides what else it says of nodes; what it says of this one goes before.
func TestPlace(t *testing.T) {
	for _, test := range []struct {
		name, spec, want, warning string
	}{
		{name: "says nothing", spec: `{}`, want: `{"csi.splitfs.io/node":"n1"}`},
		{name: "null", spec: `{"nodeSelector":null}`, want: `{"csi.splitfs.io/node":"n1"}`},
		{name: "says something else", spec: `{"nodeSelector":{"disk":"fast"}}`,
			want: `{"disk":"fast","csi.splitfs.io/node":"n1"}`},
		{name: "says it", spec: `{"nodeSelector":{"csi.splitfs.io/node":"n1"}}`, want: `{"csi.splitfs.io/node":"n1"}`},
		{name: "wants another node", spec: `{"nodeSelector":{"csi.splitfs.io/node":"n2"}}`,
			want: `{"csi.splitfs.io/node":"n2"}`, warning: "the pod asks for another node"},
		{name: "is on it", spec: `{"nodeName":"n1"}`, want: `null`},
		{name: "is elsewhere", spec: `{"nodeName":"n2"}`, want: `null`, warning: "the pod asks for another node"},
	} {
		raw := []byte(`{"spec":` + test.spec + `}`)
		for range 2 { // the second time it changes nothing
			pod := &corev1.Pod{}
			if err := json.Unmarshal(raw, pod); err != nil {
				t.Fatal(err)
			}
			operations, warning, err := Place(raw, pod, "data", "n1")
			if err != nil || (warning == "") != (test.warning == "") || !strings.Contains(warning, test.warning) {
				t.Errorf("%s: warning %q, %v", test.name, warning, err)
			}
			text, err := json.Marshal(operations)
			if err != nil {
				t.Fatal(err)
			}
			if len(operations) > 0 {
				patch, err := jsonpatch.DecodePatch(text)
				if err != nil {
					t.Fatal(err)
				}
				if raw, err = patch.Apply(raw); err != nil {
					t.Fatal(err)
				}
			}
		}
		var got struct {
			Spec struct {
				NodeSelector json.RawMessage `json:"nodeSelector"`
			} `json:"spec"`
		}
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatal(err)
		}
		if have := string(got.Spec.NodeSelector); have != test.want && (have != "" || test.want != "null") {
			t.Errorf("%s: %s, wanted %s", test.name, have, test.want)
		}
	}
}
