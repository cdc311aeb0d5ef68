// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
)

func main() {
	f, err := os.OpenFile("log", os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		log.Fatal(err)
	}
	n, err := strconv.Atoi(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	for ; ; n++ {
		if _, err := fmt.Fprintf(f, "%d %s %d\n", n, strings.Repeat("x", n*7919%500), n); err != nil {
			log.Fatal(err)
		}
		fmt.Println(n)
	}
}
