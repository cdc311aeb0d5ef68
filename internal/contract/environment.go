// SPDX-License-Identifier: Apache-2.0

package contract

import "strings"

// Served is an entry of EnvConfig: a path of a container that the library serves, in which mode, and where the agents'
// sockets are.
type Served struct {
	Mode         Mode
	Path, Agents string
}

// Config writes the value of EnvConfig as it stands in a pod. Kubelet expands $(NAME) in a variable's value and not in
// a mount path, so a '$' is doubled.
func Config(served []Served) string {
	entries := make([]string, 0, len(served))
	for _, s := range served {
		entries = append(entries, string(s.Mode)+":"+s.Path+":"+s.Agents)
	}
	return strings.ReplaceAll(strings.Join(entries, ";"), "$", "$$")
}

// ParseConfig reads a value of EnvConfig as it stands in a pod. What is no entry is left out.
func ParseConfig(value string) []Served {
	var served []Served
	for entry := range strings.SplitSeq(Expanded(value), ";") {
		if fields := strings.Split(entry, ":"); len(fields) == 3 {
			served = append(served, Served{Mode: Mode(fields[0]), Path: fields[1], Agents: fields[2]})
		}
	}
	return served
}

// Expanded is a variable's value as a container sees it: kubelet makes one '$' of two.
func Expanded(value string) string { return strings.ReplaceAll(value, "$$", "$") }

// PreloadElements are the objects that a value of EnvPreload names, split as the dynamic linker does.
func PreloadElements(value string) []string {
	return strings.FieldsFunc(value, func(r rune) bool { return r == ':' || r == ' ' })
}
