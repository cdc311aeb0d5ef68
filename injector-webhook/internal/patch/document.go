// SPDX-License-Identifier: Apache-2.0

// Package patch builds a JSON patch from single intents over an object's raw text. The object is never marshalled from
// a Go type, so fields that are newer than the types this program was built with are not lost.
package patch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
)

// ErrPath says that the document does not have the shape an intent relies on.
var ErrPath = errors.New("path does not fit the object")

// Document is a parsed object together with the operations applied to it so far. Every intent changes both, so that
// later intents see earlier ones.
type Document struct {
	root any
	ops  []jsonpatch.Operation
}

// Parse reads one JSON object.
func Parse(raw []byte) (*Document, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	// Numbers stay text: a 64-bit integer must not pass through a float.
	dec.UseNumber()
	var root any
	if err := dec.Decode(&root); err != nil {
		return nil, fmt.Errorf("parse object: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("parse object: data after the object")
	}
	if _, ok := root.(map[string]any); !ok {
		return nil, errors.New("parse object: not a JSON object")
	}
	return &Document{root: root}, nil
}

// Operations returns the patch so far, nil when nothing was changed.
func (d *Document) Operations() []jsonpatch.Operation { return d.ops }

// Get returns what is at a path; elements are strings (members) and ints (indices).
func (d *Document) Get(path ...any) (any, bool) {
	node := d.root
	for _, element := range path {
		switch key := element.(type) {
		case string:
			object, ok := node.(map[string]any)
			if !ok {
				return nil, false
			}
			if node, ok = object[key]; !ok {
				return nil, false
			}
		case int:
			array, ok := node.([]any)
			if !ok || key < 0 || key >= len(array) {
				return nil, false
			}
			node = array[key]
		default:
			return nil, false
		}
	}
	return node, true
}

// EnsureObject makes sure that an object is at path; absent and null count as empty.
func (d *Document) EnsureObject(path ...any) error {
	if node, ok := d.Get(path...); ok && node != nil {
		if _, isObject := node.(map[string]any); !isObject {
			return fmt.Errorf("%s: %w: not an object", Pointer(path...), ErrPath)
		}
		return nil
	}
	return d.Set(map[string]any{}, path...)
}

// EnsureArray makes sure that an array is at path; absent and null count as empty.
func (d *Document) EnsureArray(path ...any) error {
	if node, ok := d.Get(path...); ok && node != nil {
		if _, isArray := node.([]any); !isArray {
			return fmt.Errorf("%s: %w: not an array", Pointer(path...), ErrPath)
		}
		return nil
	}
	return d.Set([]any{}, path...)
}

// Set puts value at a member of an object or at an existing index of an array. Setting what is already there is no
// operation.
func (d *Document) Set(value any, path ...any) error {
	plain, raw, err := toPlain(value)
	if err != nil {
		return fmt.Errorf("%s: %w", Pointer(path...), err)
	}
	parent, last, err := d.parent(path)
	if err != nil {
		return err
	}
	operation := "add"
	switch node := parent.(type) {
	case map[string]any:
		key, ok := last.(string)
		if !ok {
			return fmt.Errorf("%s: %w: an index into an object", Pointer(path...), ErrPath)
		}
		if old, exists := node[key]; exists {
			if equal(old, plain) {
				return nil
			}
			operation = "replace"
		}
		node[key] = plain
	case []any:
		index, ok := last.(int)
		if !ok || index < 0 || index >= len(node) {
			return fmt.Errorf("%s: %w: no such element", Pointer(path...), ErrPath)
		}
		if equal(node[index], plain) {
			return nil
		}
		operation = "replace"
		node[index] = plain
	default:
		return fmt.Errorf("%s: %w: parent is no container", Pointer(path...), ErrPath)
	}
	d.ops = append(d.ops, jsonpatch.NewOperation(operation, Pointer(path...), raw))
	return nil
}

// Insert puts value before the element at the path's last index; an index equal to the array's length appends.
func (d *Document) Insert(value any, path ...any) error {
	plain, raw, err := toPlain(value)
	if err != nil {
		return fmt.Errorf("%s: %w", Pointer(path...), err)
	}
	if len(path) == 0 {
		return fmt.Errorf("insert: %w: empty path", ErrPath)
	}
	index, ok := path[len(path)-1].(int)
	arrayPath := path[:len(path)-1]
	node, found := d.Get(arrayPath...)
	array, isArray := node.([]any)
	if !ok || !found || !isArray || index < 0 || index > len(array) {
		return fmt.Errorf("%s: %w: no such place in an array", Pointer(path...), ErrPath)
	}
	grown := slices.Insert(slices.Clone(array), index, plain)
	if err := d.relink(grown, arrayPath); err != nil {
		return err
	}
	d.ops = append(d.ops, jsonpatch.NewOperation("add", Pointer(path...), raw))
	return nil
}

// relink hangs a grown array into the tree; the patch already says so by its own operation.
func (d *Document) relink(array []any, path []any) error {
	parent, last, err := d.parent(path)
	if err != nil {
		return err
	}
	switch node := parent.(type) {
	case map[string]any:
		if key, ok := last.(string); ok {
			node[key] = array
			return nil
		}
	case []any:
		if index, ok := last.(int); ok && index >= 0 && index < len(node) {
			node[index] = array
			return nil
		}
	}
	return fmt.Errorf("%s: %w", Pointer(path...), ErrPath)
}

func (d *Document) parent(path []any) (any, any, error) {
	if len(path) == 0 {
		return nil, nil, fmt.Errorf("%w: the root cannot be replaced", ErrPath)
	}
	parent, ok := d.Get(path[:len(path)-1]...)
	if !ok {
		return nil, nil, fmt.Errorf("%s: %w: parent is missing", Pointer(path...), ErrPath)
	}
	return parent, path[len(path)-1], nil
}

// Pointer renders a path as a JSON pointer (RFC 6901).
func Pointer(path ...any) string {
	var b strings.Builder
	for _, element := range path {
		b.WriteByte('/')
		switch key := element.(type) {
		case string:
			b.WriteString(pointerEscape.Replace(key))
		case int:
			b.WriteString(strconv.Itoa(key))
		default:
			fmt.Fprint(&b, key)
		}
	}
	return b.String()
}

var pointerEscape = strings.NewReplacer("~", "~0", "/", "~1")

// toPlain turns a value of ours into the same kinds of nodes that Parse makes, and into the text that goes into the
// patch: an operation must not change when a later intent reaches into the node.
func toPlain(value any) (any, json.RawMessage, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, nil, fmt.Errorf("marshal value: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var plain any
	if err := dec.Decode(&plain); err != nil {
		return nil, nil, fmt.Errorf("read back value: %w", err)
	}
	return plain, raw, nil
}

func equal(a, b any) bool {
	left, errLeft := json.Marshal(a)
	right, errRight := json.Marshal(b)
	return errLeft == nil && errRight == nil && bytes.Equal(left, right)
}
