// SPDX-License-Identifier: Apache-2.0

package module

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"strings"
)

const (
	// maxModule bounds a module's file; ext4 with debug information is some 20 MiB.
	maxModule = 256 << 20
	// maxModinfo bounds the section that is read into memory; real ones are below 8 KiB.
	maxModinfo = 1 << 20
	// signatureMagic ends a signed module (include/linux/module_signature.h).
	signatureMagic = "~Module signature appended~\n"
)

// Info is what a module's file says of itself in its section .modinfo.
type Info struct {
	Name     string
	Version  string
	Vermagic string
	License  string
	Depends  []string
	Machine  elf.Machine
	// Signed says that a signature is appended, not that anybody trusts it.
	Signed bool
}

// Release returns the kernel release that the module was built for: the first word of its vermagic.
func (i Info) Release() string {
	release, _, _ := strings.Cut(i.Vermagic, " ")
	return release
}

// ReadInfo reads a module's file of the given size. Nothing in it is believed before it was checked.
func ReadInfo(r io.ReaderAt, size int64) (Info, error) {
	var info Info
	if size > maxModule {
		return info, fmt.Errorf("not a kernel module: %d bytes, at most %d are expected", size, int64(maxModule))
	}
	file, err := elf.NewFile(io.NewSectionReader(r, 0, size))
	if err != nil {
		return info, fmt.Errorf("not a kernel module: %w", err)
	}
	if file.Type != elf.ET_REL {
		return info, fmt.Errorf("not a kernel module: an ELF file of type %s, not %s", file.Type, elf.ET_REL)
	}
	info.Machine = file.Machine
	section := file.Section(".modinfo")
	if section == nil {
		return info, errors.New("not a kernel module: it has no section .modinfo")
	}
	if section.Type != elf.SHT_PROGBITS || section.Flags&elf.SHF_COMPRESSED != 0 || section.Size > maxModinfo {
		return info, fmt.Errorf("not a kernel module: section .modinfo has type %s, flags %s, %d bytes", section.Type,
			section.Flags, section.Size)
	}
	content, err := section.Data()
	if err != nil {
		return info, fmt.Errorf("read section .modinfo: %w", err)
	}
	if err := info.parse(content); err != nil {
		return info, err
	}
	info.Signed, err = signed(r, size)
	return info, err
}

// parse reads NUL-terminated "key=value" strings. Repeated keys are normal for some (alias, parm) and an error for
// those used here: a file that says two things is not to be guessed about.
func (i *Info) parse(content []byte) error {
	seen := map[string]string{}
	for entry := range bytes.SplitSeq(content, []byte{0}) {
		key, value, ok := strings.Cut(string(entry), "=")
		if !ok {
			continue // padding
		}
		switch key {
		case "name", "version", "vermagic", "license", "depends":
			if before, again := seen[key]; again && before != value {
				return fmt.Errorf("section .modinfo names %s twice: %q and %q", key, before, value)
			}
			seen[key] = value
		}
	}
	i.Name, i.Version, i.Vermagic, i.License = seen["name"], seen["version"], seen["vermagic"], seen["license"]
	i.Depends = strings.FieldsFunc(seen["depends"], func(r rune) bool { return r == ',' })
	if i.Name == "" || i.Vermagic == "" {
		return errors.New("section .modinfo names no module or no kernel (name, vermagic)")
	}
	return nil
}

func signed(r io.ReaderAt, size int64) (bool, error) {
	if size < int64(len(signatureMagic)) {
		return false, nil
	}
	tail := make([]byte, len(signatureMagic))
	if _, err := r.ReadAt(tail, size-int64(len(tail))); err != nil {
		return false, fmt.Errorf("read the end of the module: %w", err)
	}
	return string(tail) == signatureMagic, nil
}
