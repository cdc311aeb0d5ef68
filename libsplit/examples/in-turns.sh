# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the measure scripts of the examples share. To be sourced.

median() {
	sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

# in_turns WORK TURNS WAY...: calls `took`, which prints seconds, with the words of each way (a program and perhaps a mode), in turns, and prints the
# medians and how many times as fast as the first way each is. WORK: a directory for what they took.
in_turns() {
	local work=$1 turns=$2 i way first
	shift 2
	for ((i = 0; i < turns; i++)); do
		for way in "$@"; do
			# shellcheck disable=SC2086  # a program and a mode
			took $way >>"$work/${way/ /-}.took"
		done
	done
	first=$(median <"$work/${1/ /-}.took")
	for way in "$@"; do
		median <"$work/${way/ /-}.took" | awk -v way="$way" -v first="$first" '{ printf "%-16s %.3f s  %.2f times as fast\n", way, $1, first / $1 }'
	done
}
