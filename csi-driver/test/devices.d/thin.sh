# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2034  # of vm-devices
# Thin pools beside linear volumes, with the real lvm2 and thin-provisioning-tools.

machine=(--pmem 640M --labels)

use_region() {
    tests=("SPLITFS_TEST_THIN=$(ndctl list --regions | jq -r '.[] | select(.type == "pmem") | .dev')")
    case $(uname -r) in 6.[0-7].*) tests+=(SPLITFS_TEST_NESTS=no) ;; esac
}

first_boot() {
    modprobe dm_thin_pool
    use_region
    run_tests 'TestRealThinGroup$' 1
    run_tests 'TestRealThin$' 1
    is "what is left for the next boot" "$(ours | tr '\n' ' ')" "splitfs-lvm pool0 "
    is "what the pool does when it is full" "$(foreign_lvm lvs --noheadings --options lv_when_full @splitfs.io.pool | tr -d ' ')" error
}

second_boot() {
    modprobe dm_thin_pool
    use_region
    run_tests 'TestRealThinGroup$' 1
    is "what is left in the end" "$(ours | tr '\n' ' ')" "splitfs-lvm pool0 "
}
