// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"splitfs.io/splitfs/csi-driver/internal/volume"
)

// ErrNoClass: volumes of this class cannot be made, because the operator has defined no such class, or because none is
// named and none is the default.
var ErrNoClass = errors.New("no such device class")

// Class is a part of a manager's devices to which the operator has given a name.
type Class struct {
	Name    string
	Default bool
	// Thin: what its devices take together may be more than there is.
	Thin bool
	// Capacity is what its devices can take together, Available what the largest one more can take.
	Capacity, Available int64
}

// Classed is what a Manager implements whose devices come in classes.
type Classed interface {
	// OfClass returns the manager as it is for new devices of a class, and the class's name; "" is the default class, and
	// where no classes are defined all there is. Others are ErrNoClass.
	OfClass(class string) (manager Manager, name string, err error)
	// Classes returns the classes that are defined.
	Classes(ctx context.Context) ([]Class, error)
}

func ofClass(m Manager, class string) (Manager, string, error) {
	if classed, ok := m.(Classed); ok {
		return classed.OfClass(class)
	}
	if class != "" {
		return nil, "", fmt.Errorf("%w: %w: %q: %s devices have no classes; leave deviceClass out", volume.ErrInvalid,
			ErrNoClass, class, m.Name())
	}
	return m, "", nil
}

// ClassOf returns the name of the class that new volumes which ask for this one are of: "" may mean a default.
func (m Managers) ClassOf(name, class string) (string, error) {
	manager, err := m.Get(name)
	if err != nil {
		return "", err
	}
	_, class, err = ofClass(manager, class)
	return class, err
}

// NoClass is the error for a class that is not among those defined.
func NoClass(what, class string, defined []string) error {
	offers := "it offers: " + strings.Join(defined, ", ")
	if len(defined) == 0 {
		offers = "it offers no classes: leave deviceClass out"
	}
	if class == "" {
		return fmt.Errorf("%w: %w: the StorageClass has no deviceClass, and this node has no default for %s devices; %s",
			volume.ErrInvalid, ErrNoClass, what, offers)
	}
	return fmt.Errorf("%w: %w: this node has no class %q of %s devices; %s", volume.ErrInvalid, ErrNoClass, class, what,
		offers)
}
