# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2034  # of vm-devices
# Device classes of logical volumes: two regions, which classes divide.

machine=(--pmem 256M --pmem 512M --labels)

# by_size: the regions, the smaller one first: the kernel numbers them in the order in which they answer.
by_size() { ndctl list --regions | jq -r '[.[] | select(.type == "pmem")] | sort_by(.size) | map(.dev) | join(",")'; }

# class_test NAME: a test of the lvm package, whose program needs nothing else.
class_test() {
    tests=("SPLITFS_TEST_CLASSES=$(by_size)")
    program=lvm.test run_tests "$1" 1
}

first_boot() { class_test 'TestRealClasses$'; }

second_boot() {
    class_test 'TestRealClassesAgain$'
    is "what is left in the end" "$(foreign_lvm lvs --noheadings --options lv_name @splitfs.io | tr -d ' ')" ""
}
