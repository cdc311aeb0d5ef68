// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
)

// decodeTree decodes JSON without losing anything: numbers stay as they are written.
func decodeTree(raw []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var tree any
	err := decoder.Decode(&tree)
	return tree, err
}

// carryUnknown puts into now what read has and a value of type t cannot hold: the fields of a newer driver, which an
// older one that runs after it must not drop. A field that is known and was left out on purpose stays out.
func carryUnknown(read, now any, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	from, fromOK := read.(map[string]any)
	to, toOK := now.(map[string]any)
	if !fromOK || !toOK {
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		known := map[string]reflect.Type{}
		for i := range t.NumField() {
			if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "" && name != "-" {
				known[name] = t.Field(i).Type
			}
		}
		for key, value := range from {
			if fieldType, ok := known[key]; ok {
				carryUnknown(value, to[key], fieldType)
			} else {
				to[key] = value
			}
		}
	case reflect.Map:
		for key, value := range from {
			carryUnknown(value, to[key], t.Elem())
		}
	}
}
