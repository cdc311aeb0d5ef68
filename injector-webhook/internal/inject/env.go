// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"splitfs.io/splitfs/injector-webhook/internal/patch"
	"splitfs.io/splitfs/internal/contract"
)

// envEditor changes the variables of one container in the document and in its own copy, so that indices stay right.
type envEditor struct {
	doc  *patch.Document
	path []any
	vars []corev1.EnvVar
}

// last finds the entry that counts: of several entries with one name kubelet takes the last.
func (e *envEditor) last(name string) int { return e.lastBefore(name, len(e.vars)) }

func (e *envEditor) lastBefore(name string, end int) int {
	for i := end - 1; i >= 0; i-- {
		if e.vars[i].Name == name {
			return i
		}
	}
	return -1
}

func (e *envEditor) at(elements ...any) []any { return append(slices.Clone(e.path), elements...) }

func (e *envEditor) insert(i int, v corev1.EnvVar) error {
	if err := e.doc.EnsureArray(e.path...); err != nil {
		return fmt.Errorf("insert variable %s: %w", v.Name, err)
	}
	if err := e.doc.Insert(v, e.at(i)...); err != nil {
		return fmt.Errorf("insert variable %s: %w", v.Name, err)
	}
	e.vars = slices.Insert(slices.Clone(e.vars), i, v)
	return nil
}

func (e *envEditor) add(v corev1.EnvVar) error { return e.insert(len(e.vars), v) }

// setValue changes the text of an entry and leaves whatever else it holds.
func (e *envEditor) setValue(i int, value string) error {
	if err := e.doc.Set(value, e.at(i, "value")...); err != nil {
		return fmt.Errorf("set variable %s: %w", e.vars[i].Name, err)
	}
	e.vars[i].Value = value
	return nil
}

func (e *envEditor) rename(i int, name string) error {
	if err := e.doc.Set(name, e.at(i, "name")...); err != nil {
		return fmt.Errorf("rename variable %s: %w", e.vars[i].Name, err)
	}
	e.vars[i].Name = name
	return nil
}

// setWish sets a variable of ours when the annotations say something of it, and returns what the container has then;
// none is what it has without the variable, so a wish for that sets nothing anew. What the pod's author set in the
// container by hand counts otherwise.
func setWish[T ~string](e *envEditor, name string, wish, none T) (T, error) {
	i := e.last(name)
	switch {
	case i < 0 && (wish == "" || wish == none):
		return none, nil
	case wish == "":
		return T(e.vars[i].Value), nil
	}
	_, err := e.set(name, string(wish))
	return wish, err
}

// set gives a variable a value and says whether it replaced somebody else's.
func (e *envEditor) set(name, value string) (replaced bool, err error) {
	i := e.last(name)
	if i < 0 {
		return false, e.add(corev1.EnvVar{Name: name, Value: value})
	}
	if e.vars[i].ValueFrom == nil {
		replaced = e.vars[i].Value != value
		return replaced, e.setValue(i, value)
	}
	v := corev1.EnvVar{Name: name, Value: value}
	if err := e.doc.Set(v, e.at(i)...); err != nil {
		return true, fmt.Errorf("set variable %s: %w", v.Name, err)
	}
	e.vars[i] = v
	return true, nil
}

// mergePreload puts the library behind whatever LD_PRELOAD the container has already.
//
// A value can be extended as text. A value from a source (valueFrom, envFrom) is known to kubelet only, when it starts
// the container: its entry is moved to SPLITFS_LD_PRELOAD, and LD_PRELOAD becomes "$(SPLITFS_LD_PRELOAD):" and the
// library. Kubelet leaves $(NAME) as it is when NAME was never set, and the dynamic linker would then complain at each
// exec. So where a source may turn out to be absent, an empty SPLITFS_LD_PRELOAD is set first: kubelet skips an
// optional source that is absent and keeps what was set before it. The dynamic linkers of glibc and musl both ignore
// empty elements.
func (e *envEditor) mergePreload(envFrom []corev1.EnvFromSource) error {
	i := e.last(contract.EnvPreload)
	if i >= 0 && (e.vars[i].ValueFrom == nil || e.vars[i].Value != "") {
		return e.extendPreload(i)
	}
	sources := preloadSources(envFrom)
	if i < 0 && len(sources) == 0 {
		return e.add(corev1.EnvVar{Name: contract.EnvPreload, Value: contract.LibraryPath})
	}
	original := e.freeName(contract.EnvPreloadOriginal)
	defaults := []corev1.EnvVar{{Name: original}}
	switch {
	case i >= 0 && !mayBeAbsent(e.vars[i].ValueFrom):
		defaults = nil
	case i >= 0 && e.lastBefore(contract.EnvPreload, i) >= 0:
		// The entry hides an earlier one, which counts again when the source is absent.
		defaults[0].Value = "$(" + contract.EnvPreload + ")"
	default:
		for _, source := range sources {
			defaults = append(defaults, corev1.EnvVar{Name: original, ValueFrom: source})
		}
	}
	place := i
	if i < 0 {
		place = len(e.vars)
	}
	for _, v := range defaults {
		if err := e.insert(place, v); err != nil {
			return err
		}
		place++
	}
	if i >= 0 {
		if err := e.rename(place, original); err != nil {
			return err
		}
		place++
	}
	return e.insert(place, corev1.EnvVar{Name: contract.EnvPreload, Value: "$(" + original + "):" + contract.LibraryPath})
}

// extendPreload adds the library to a list in plain text. Elements are compared whole: "/opt/splitfs/libsplit.so.old"
// is another.
func (e *envEditor) extendPreload(i int) error {
	value := e.vars[i].Value
	elements := contract.PreloadElements(value)
	switch {
	case slices.Contains(elements, contract.LibraryPath):
		return nil
	case len(elements) == 0:
		return e.setValue(i, contract.LibraryPath)
	}
	return e.setValue(i, value+":"+contract.LibraryPath)
}

// freeName returns a variable name the container does not use yet.
func (e *envEditor) freeName(base string) string {
	name := base
	for n := 1; e.last(name) >= 0; n++ {
		name = fmt.Sprintf("%s_%d", base, n)
	}
	return name
}

// preloadSources names the keys of the container's envFrom sources that would become LD_PRELOAD, in kubelet's order
// (the last one that exists wins). They are optional: whether the key exists is not known here, and the injector needs
// no right to read it.
func preloadSources(envFrom []corev1.EnvFromSource) []*corev1.EnvVarSource {
	optional := true
	var sources []*corev1.EnvVarSource
	for i := range envFrom {
		key, ok := strings.CutPrefix(contract.EnvPreload, envFrom[i].Prefix)
		if !ok || key == "" {
			continue
		}
		switch from := envFrom[i]; {
		case from.ConfigMapRef != nil:
			sources = append(sources, &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
				LocalObjectReference: from.ConfigMapRef.LocalObjectReference, Key: key, Optional: &optional}})
		case from.SecretRef != nil:
			sources = append(sources, &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: from.SecretRef.LocalObjectReference, Key: key, Optional: &optional}})
		}
	}
	return sources
}

// mayBeAbsent says whether kubelet may skip a variable with this source. Kinds of sources we do not know count as
// optional.
func mayBeAbsent(source *corev1.EnvVarSource) bool {
	isTrue := func(b *bool) bool { return b != nil && *b }
	switch {
	case source.FieldRef != nil, source.ResourceFieldRef != nil:
		return false
	case source.ConfigMapKeyRef != nil:
		return isTrue(source.ConfigMapKeyRef.Optional)
	case source.SecretKeyRef != nil:
		return isTrue(source.SecretKeyRef.Optional)
	case source.FileKeyRef != nil:
		return isTrue(source.FileKeyRef.Optional)
	}
	return true
}
