# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2034  # of vm-devices
# CXL memory devices. Their regions are made by hand at each boot, as where the firmware makes none; their labels are in the devices.

# The NVDIMM is for the state of these tests.
machine=(--cxl 768M --cxl 768M --pmem 96M)

# Of one device each: the kernel makes them of the devices' serial numbers.
lvm_set=0x200000001000 namespace_set=0x200200001001

# cxl_report FILTER: of what the driver shows of the CXL regions.
cxl_report() { devices --json | jq -c "map(select(.provider == \"CXL\")) | $1"; }

# make_regions: as docs/devices.md says.
make_regions() {
    local decoder
    is "CXL regions of a new boot" "$(cxl_report length)" 0
    for decoder in decoder0.0 decoder0.1; do
        cxl create-region -t pmem -d "$decoder" >/run/region 2>&1 || fail "no region behind $decoder: $(cat /run/region)"
    done
    devices
    is "interleave sets" "$(cxl_report 'map(.interleaveSet) | sort | join(" ")')" "\"$lvm_set $namespace_set\""
}

use_state() {
    mkdir -p "$state"
    mount /dev/pmem0 "$state"
}

use_regions() { tests=("SPLITFS_TEST_REGIONS=lvm=$lvm_set,namespace=$namespace_set"); }

first_boot() {
    mkfs.ext4 -q -F -b 4096 /dev/pmem0
    use_state
    make_regions
    is "what they hold" "$(cxl_report 'map(.namespaces[])')" "[]"
    # A volume group is made as anywhere, but more slowly; labels are written in a way of their own.
    tests=("SPLITFS_TEST_REGIONS=namespace=$namespace_set")
    run_tests TestRealDevicesKilled 2
    use_regions
    run_tests TestRealDevicesKept 3
    is "what is left for the next boot" "$(ours | tr '\n' ' ')" "$kept splitfs-lvm $kept "
    umount "$state"
}

second_boot() {
    use_state
    make_regions
    use_regions
    run_tests TestRealDevicesAgain 3
    is "what is left in the end" "$(ours | tr '\n' ' ')" "splitfs-lvm "
    umount "$state"
}
