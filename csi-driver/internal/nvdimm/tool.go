// SPDX-License-Identifier: Apache-2.0

package nvdimm

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"k8s.io/klog/v2"

	"splitfs.io/splitfs/csi-driver/internal/command"
)

// MaxNameLength is how long a namespace's name can be.
const MaxNameLength = 63

// ownPrefix begins the names of all that the driver makes.
const ownPrefix = "splitfs-"

// Own says whether a name is one that this driver gives.
func Own(name string) bool { return strings.HasPrefix(name, ownPrefix) }

// Tool runs ndctl, one at a time. All users of one node share one.
type Tool struct {
	// Memory says what the node's memory is; nil: nobody does.
	Memory func(ctx context.Context) ([]Range, error)

	mu sync.Mutex
}

// List returns all persistent memory.
func (t *Tool) List(ctx context.Context) (Inventory, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	inventory, err := list(ctx)
	if err != nil {
		return nil, err
	}
	return inventory, t.addMemory(ctx, inventory)
}

func list(ctx context.Context) (Inventory, error) {
	out, err := command.Run(ctx, "ndctl", "list", "--buses", "--regions", "--namespaces", "--idle")
	if err != nil {
		return nil, fmt.Errorf("list persistent memory: %w", err)
	}
	return Parse(out)
}

// Create makes an fsdax namespace of raw bytes in a region and gives it a name.
func (t *Tool) Create(ctx context.Context, region Region, name string, raw int64, where Map) (Namespace, error) {
	if name == "" || len(name) > MaxNameLength {
		return Namespace{}, fmt.Errorf("%q cannot be a namespace's name: it has %d bytes, allowed are 1 to %d", name,
			len(name), MaxNameLength)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := makeRoom(ctx, region); err != nil {
		return Namespace{}, err
	}
	var made Namespace
	err := command.RunJSON(ctx, &made, "ndctl", "create-namespace", "--region="+region.Dev, "--mode="+ModeFSDAX,
		"--map="+string(where),
		"--align="+strconv.FormatInt(HugePage, 10), "--size="+strconv.FormatInt(raw, 10), "--name="+name)
	if err != nil {
		return Namespace{}, fmt.Errorf("make namespace %q of %d bytes in %s: %w", name, raw, region.Dev, err)
	}
	klog.FromContext(ctx).V(2).Info("Made a namespace", "namespace", made.Dev, "name", name, "region", region.Dev,
		"size", int64(made.Size))
	return made, nil
}

// makeRoom makes sure that the region has the seed that a new namespace grows from. The kernel makes the next seed when
// the namespace of the last one is enabled: one that was interrupted before that keeps all others from being made. Ours
// are enabled; what is not ours is left alone, and the error of ndctl (no space) would mislead.
func makeRoom(ctx context.Context, region Region) error {
	released := false
	for _, ns := range region.Used() {
		if ns.Claimed && Own(ns.Name) { // it holds the seed of what claims namespaces, too
			if err := enable(ctx, ns); err != nil {
				return err
			}
			released = true
		}
	}
	if released || len(region.Used()) < len(region.Namespaces) {
		return nil
	}
	var foreign []string
	for _, ns := range region.Used() {
		switch {
		case ns.Enabled():
		case !Own(ns.Name):
			foreign = append(foreign, fmt.Sprintf("%s (%q)", ns.Dev, ns.Name))
		default:
			return enable(ctx, ns)
		}
	}
	return fmt.Errorf("%s can have no new namespace as long as these, which are not of this driver, are disabled: %s; "+
		"enable or destroy them with ndctl",
		region.Dev, strings.Join(foreign, ", "))
}

// Destroy gives a namespace's space back. It makes sure once more that the namespace still is the one that was meant:
// the kernel's names of namespaces are given anew.
func (t *Tool) Destroy(ctx context.Context, ns Namespace) error {
	if ns.Name == "" || ns.UUID == "" {
		return fmt.Errorf("namespace %s has no name and UUID, so nothing says whose it is; it is not destroyed", ns.Dev)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	inventory, err := list(ctx)
	if err != nil {
		return err
	}
	for region, now := range inventory.Used() {
		if now.Dev != ns.Dev {
			continue
		}
		if now.Name != ns.Name || now.UUID != ns.UUID {
			return fmt.Errorf("namespace %s was %q (%s) and is %q (%s) now; it is not destroyed", ns.Dev, ns.Name, ns.UUID,
				now.Name, now.UUID)
		}
		// --force is ndctl's word for a namespace that is enabled; one that is mounted or otherwise in use it refuses all the
		// same.
		if _, err := command.Run(ctx, "ndctl", "destroy-namespace", "--force", "--region="+region.Dev, ns.Dev); err != nil {
			return fmt.Errorf("destroy namespace %s (%q): %w", ns.Dev, ns.Name, err)
		}
		klog.FromContext(ctx).V(2).Info("Destroyed a namespace", "namespace", ns.Dev, "name", ns.Name)
		return nil
	}
	return nil
}

// Enable gives a namespace its driver, and returns it as it then is. Only then the kernel looks at what is in it:
// before, each namespace shows as raw, with another size and UUID.
func (t *Tool) Enable(ctx context.Context, ns Namespace) (Namespace, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := enable(ctx, ns); err != nil {
		return ns, err
	}
	inventory, err := list(ctx)
	if err != nil {
		return ns, err
	}
	for _, now := range inventory.Used() {
		if now.Dev == ns.Dev && now.Name == ns.Name {
			return now, nil
		}
	}
	return ns, fmt.Errorf("namespace %s (%q) was enabled and is not there any more", ns.Dev, ns.Name)
}

func enable(ctx context.Context, ns Namespace) error {
	if ns.Claimed {
		// ndctl enables none that is claimed. Disabling gives up the claim and leaves alone what the namespace holds.
		if _, err := command.Run(ctx, "ndctl", "disable-namespace", ns.Dev); err != nil {
			return fmt.Errorf("release namespace %s (%q): %w", ns.Dev, ns.Name, err)
		}
	}
	if _, err := command.Run(ctx, "ndctl", "enable-namespace", ns.Dev); err != nil {
		return fmt.Errorf("enable namespace %s (%q): %w", ns.Dev, ns.Name, err)
	}
	klog.FromContext(ctx).V(2).Info("Enabled a namespace", "namespace", ns.Dev, "name", ns.Name)
	return nil
}

// Named is a namespace that was found by its name.
type Named struct {
	Namespace
	Region Region
}

// Find returns the namespace with a name, nil when there is none. Two with one name are an error: nobody knows which is
// meant.
func (i Inventory) Find(name string) (*Named, error) {
	var found *Named
	for region, ns := range i.Used() {
		if ns.Name != name {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("namespaces %s and %s are both named %q", found.Dev, ns.Dev, name)
		}
		found = &Named{ns, region}
	}
	return found, nil
}
