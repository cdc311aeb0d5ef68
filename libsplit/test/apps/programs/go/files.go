// SPDX-License-Identifier: Apache-2.0

// What files.c does, by Go's own system calls.
package main

import (
	"bytes"
	"fmt"
	"log"
	"os"
)

const blocks, block = 60, 5000

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	f, err := os.OpenFile("made", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o640)
	check(err)
	for i := 0; i < blocks; i++ {
		_, err = f.Write(bytes.Repeat([]byte{byte('A' + i%26)}, block))
		check(err)
	}
	_, err = f.WriteAt([]byte("overwritten"), 4090)
	check(err)
	back := make([]byte, blocks*block)
	_, err = f.ReadAt(back, 0)
	check(err)
	var sum uint32
	for _, c := range back {
		sum = sum*31 + uint32(c)
	}
	check(f.Truncate(100001))
	check(f.Sync())
	check(f.Close())
	f, err = os.OpenFile("made", os.O_WRONLY|os.O_APPEND, 0)
	check(err)
	_, err = fmt.Fprintf(f, "the end %d\n", sum)
	check(err)
	check(f.Close())
	check(os.Rename("made", "kept"))
	st, err := os.Stat("kept")
	check(err)
	fmt.Println(sum, st.Size())
}
