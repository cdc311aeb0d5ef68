// SPDX-License-Identifier: Apache-2.0

package volume

import "splitfs.io/splitfs/internal/contract"

// Changes are what a VolumeAttributesClass says of a volume; what it does not name stays as it is.
type Changes struct {
	Mode  contract.Mode `json:"mode,omitempty"`
	Erase Erase         `json:"erase,omitempty"`
}

// ParseChanges reads the parameters of a VolumeAttributesClass: what can be changed while a volume exists, and nothing
// else.
func ParseChanges(in map[string]string) (Changes, error) {
	c := Changes{Mode: contract.Mode(in[contract.ParameterMode]), Erase: Erase(in[keyErase])}
	const what = "VolumeAttributesClass parameter"
	if err := checkKeys(what, in, []string{contract.ParameterMode, keyErase}, nil); err != nil {
		return c, err
	}
	if _, ok := in[contract.ParameterMode]; ok {
		if err := oneOf(what+" "+contract.ParameterMode, string(c.Mode), contract.ModeNames()); err != nil {
			return c, err
		}
	}
	if _, ok := in[keyErase]; ok {
		return c, oneOf(what+" "+keyErase, string(c.Erase), erases)
	}
	return c, nil
}

// With returns p with changes in place of what the StorageClass says.
func (p Params) With(c Changes) Params {
	if c.Mode != "" {
		p.Mode = c.Mode
	}
	if c.Erase != "" {
		p.Erase = c.Erase
	}
	return p
}
