// SPDX-License-Identifier: Apache-2.0

// Decode a file of base64 into another one, from the first one's own memory.
package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"

	"splitfs.io/splitfs/libsplit/bindings/go/splitfs"
)

// A multiple of 4: input without line breaks.
const chunk = 4 << 20

func decode(source, target string) (err error) {
	if _, err := splitfs.SetFlags(splitfs.Copy); err != nil {
		return err
	}
	in, err := splitfs.Open(source)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := splitfs.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	return in.WithPeek(0, splitfs.ToEnd, func(data []byte) error {
		decoded := make([]byte, base64.StdEncoding.DecodedLen(chunk))
		for at := int64(0); len(data) > 0; {
			part := data[:min(chunk, len(data))]
			data = data[len(part):]
			n, err := base64.StdEncoding.Decode(decoded, part)
			if err != nil {
				return err
			}
			if _, err := out.WriteAt(decoded[:n], at); err != nil {
				return err
			}
			at += int64(n)
		}
		return nil
	})
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: decode INPUT OUTPUT")
		os.Exit(2)
	}
	if err := decode(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "decode:", err)
		os.Exit(1)
	}
}
