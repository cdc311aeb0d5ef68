// SPDX-License-Identifier: Apache-2.0

package module

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"strings"
	"testing"
)

// makeModule builds the smallest ELF file that looks like a kernel module: a .modinfo section with these entries.
func makeModule(machine elf.Machine, entries ...string) []byte {
	const headerSize, sectionSize = 64, 64
	modinfo := []byte(strings.Join(entries, "\x00") + "\x00")
	names := []byte("\x00.modinfo\x00.shstrtab\x00")
	modinfoAt := uint64(headerSize)
	namesAt := modinfoAt + uint64(len(modinfo))
	sectionsAt := (namesAt + uint64(len(names)) + 7) &^ 7
	var b bytes.Buffer
	header := elf.Header64{Type: uint16(elf.ET_REL), Machine: uint16(machine), Version: 1, Shoff: sectionsAt,
		Ehsize: headerSize, Shentsize: sectionSize, Shnum: 3, Shstrndx: 2}
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS], header.Ident[elf.EI_DATA], header.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(
		elf.ELFDATA2LSB), 1
	write := func(v any) {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			panic(err)
		}
	}
	write(header)
	b.Write(modinfo)
	b.Write(names)
	b.Write(make([]byte, int(sectionsAt)-b.Len()))
	write(elf.Section64{})
	write(elf.Section64{
		Name: 1, Type: uint32(elf.SHT_PROGBITS), Flags: uint64(elf.SHF_ALLOC), Off: modinfoAt, Size: uint64(len(modinfo)),
		Addralign: 1,
	})
	write(elf.Section64{Name: 10, Type: uint32(elf.SHT_STRTAB), Off: namesAt, Size: uint64(len(names)), Addralign: 1})
	return b.Bytes()
}

const testRelease = "6.1.0-99-amd64"

func goodEntries() []string {
	return []string{"license=GPL", "alias=fs-ext4_splitfs", "alias=something-else", "version=1.2",
		"depends=mbcache,jbd2,crc16", "name=ext4_splitfs", "vermagic=" + testRelease + " SMP preempt mod_unload modversions "}
}

func read(content []byte) (Info, error) {
	return ReadInfo(bytes.NewReader(content), int64(len(content)))
}

func TestReadInfo(t *testing.T) {
	info, err := read(makeModule(elf.EM_X86_64, goodEntries()...))
	if err != nil {
		t.Fatal(err)
	}
	if info.Name != Name || info.Version != "1.2" || info.Release() != testRelease ||
		strings.Join(info.Depends, " ") != "mbcache jbd2 crc16" ||
		info.License != "GPL" || info.Machine != elf.EM_X86_64 || info.Signed {
		t.Errorf("read %+v", info)
	}
	withSignature := append(makeModule(elf.EM_X86_64, goodEntries()...), "a signature"+signatureMagic...)
	if info, err := read(withSignature); err != nil || !info.Signed {
		t.Errorf("a signed module: %+v, %v", info, err)
	}
}

func TestReadInfoRefuses(t *testing.T) {
	good := makeModule(elf.EM_X86_64, goodEntries()...)
	changed := func(change func([]byte)) []byte {
		c := bytes.Clone(good)
		change(c)
		return c
	}
	for name, c := range map[string]struct {
		content []byte
		says    string
	}{
		"empty":          {nil, "not a kernel module"},
		"text":           {[]byte("#!/bin/sh\necho no module\n"), "not a kernel module"},
		"only the magic": {[]byte(elf.ELFMAG), "not a kernel module"},
		"cut in half":    {good[:len(good)/2], "not a kernel module"},
		"a program":      {changed(func(c []byte) { c[16] = byte(elf.ET_EXEC) }), "ET_EXEC"},
		"no .modinfo":    {bytes.Replace(good, []byte(".modinfo"), []byte(".comment"), 1), "no section .modinfo"},
		"no name":        {makeModule(elf.EM_X86_64, "vermagic=6.1"), "names no module"},
		"no vermagic":    {makeModule(elf.EM_X86_64, "name=ext4_splitfs"), "names no module or no kernel"},
		"two names":      {makeModule(elf.EM_X86_64, append(goodEntries(), "name=other")...), "names name twice"},
		"huge .modinfo": {makeModule(elf.EM_X86_64, append(goodEntries(), "parm="+strings.Repeat("x", maxModinfo))...),
			"bytes"},
		"xz, not unpacked": {[]byte("\xfd7zXZ\x00 and so on"), "not a kernel module"},
	} {
		if info, err := read(c.content); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %+v, error %v; wanted one that says %q", name, info, err, c.says)
		}
	}
	if _, err := ReadInfo(bytes.NewReader(good), maxModule+1); err == nil {
		t.Error("a file larger than any module was accepted")
	}
}

func TestFits(t *testing.T) {
	for name, c := range map[string]struct {
		entries []string
		machine elf.Machine
		says    string
	}{
		"good": {goodEntries(), machines["amd64"], ""},
		"another module": {[]string{"name=ext4", "vermagic=" + testRelease + " SMP"}, elf.EM_X86_64,
			`it is module "ext4"`},
		"the next patch level": {[]string{"name=ext4_splitfs", "vermagic=6.1.0-100-amd64 SMP"}, elf.EM_X86_64,
			"built for kernel 6.1.0-100-amd64"},
		"a prefix": {[]string{"name=ext4_splitfs", "vermagic=6.1.0-9 SMP"}, elf.EM_X86_64,
			"built for kernel 6.1.0-9,"},
		"a longer one": {[]string{"name=ext4_splitfs", "vermagic=" + testRelease + "64 SMP"}, elf.EM_X86_64,
			"built for kernel"},
		"another processor":     {goodEntries(), elf.EM_S390, "built for processor EM_S390"},
		"vermagic is one space": {[]string{"name=ext4_splitfs", "vermagic= "}, elf.EM_X86_64, "built for kernel ,"},
	} {
		info, err := read(makeModule(c.machine, c.entries...))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := info.fits(testRelease); (err == nil) != (c.says == "") ||
			err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, wanted %q", name, err, c.says)
		}
	}
}

// FuzzReadInfo: whatever lies in the directory of modules, reading it neither crashes nor accepts a module without name
// and kernel.
func FuzzReadInfo(f *testing.F) {
	good := makeModule(elf.EM_X86_64, goodEntries()...)
	f.Add(good)
	f.Add(append(bytes.Clone(good), signatureMagic...))
	f.Add(makeModule(elf.EM_AARCH64, "name=", "vermagic", "=", "name=a=b"))
	f.Add([]byte(elf.ELFMAG))
	f.Fuzz(func(t *testing.T, content []byte) {
		info, err := read(content)
		if err == nil && (info.Name == "" || info.Vermagic == "") {
			t.Errorf("accepted %+v", info)
		}
		if err == nil && info.Signed != bytes.HasSuffix(content, []byte(signatureMagic)) {
			t.Errorf("signed: %v", info.Signed)
		}
	})
}

// FuzzParseManifest: a manifest is accepted only with a release and a hash.
func FuzzParseManifest(f *testing.F) {
	f.Add(
		[]byte(`{"module":"ext4_splitfs","release":"6.1.0-1-amd64","sha256":"` + strings.Repeat("0a", 32) +
			`","more":[1,2]}`))
	f.Add([]byte(`{"release":1}`))
	f.Add([]byte(`{}{}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		if m, err := parseManifest(content); err == nil && (m.Release == "" || len(m.SHA256) != 64) {
			t.Errorf("accepted %+v", m)
		}
	})
}
