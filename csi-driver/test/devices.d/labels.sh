# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2034,SC2054  # of vm-devices
# NVDIMMs with labels, which are divided among the driver and others.

machine=(--pmem 1536M --pmem 1G --labels)

# The driver's own NVDIMM is region1; in region0 it has neighbours.
pmemcsi_volume=pvc-0d-b6d1a4c3f0e9a2577cf0c9e1f6f4ff3d54ff58d0a7b8b4d3a2c1e0f9
pmemcsi_lvm=pvc-7e-0123456789abcdef0123456789abcdef0123456789abcdef01234567

# blockdev NAME: the device of a namespace.
blockdev_of() { ndctl list --namespaces | jq -r --arg name "$1" '.[] | select(.name == $name) | .blockdev' | sed 's|^|/dev/|'; }

# What others have on this node, each made the way its owner makes it.
make_foreign() {
    ndctl create-namespace --region=region0 --mode=fsdax --size=96M --align=2M --name=state >/dev/null
    mkfs.ext4 -q -F -b 4096 "$(blockdev_of state)"
    # pmem-csi in mode "direct": a namespace is a volume.
    ndctl create-namespace --region=region0 --mode=fsdax --size=64M --align=2M --name="$pmemcsi_volume" >/dev/null
    mkfs.ext4 -q -F -b 4096 -E stride=512,stripe_width=512 "$(blockdev_of "$pmemcsi_volume")"
    # pmem-csi in mode "LVM": a namespace carries a volume group.
    ndctl create-namespace --region=region0 --mode=fsdax --size=128M --align=2M --name=pmem-csi >/dev/null
    foreign_lvm vgcreate --quiet --quiet --force ndbus0region0fsdax "$(blockdev_of pmem-csi)"
    foreign_lvm lvcreate --quiet --quiet -Zn -L 64M -n "$pmemcsi_lvm" ndbus0region0fsdax
    mkfs.ext4 -q -F -b 4096 -E stride=512,stripe_width=512 "/dev/ndbus0region0fsdax/$pmemcsi_lvm"
    for device in "$(blockdev_of "$pmemcsi_volume")" "/dev/ndbus0region0fsdax/$pmemcsi_lvm"; do
        mount -o dax=always "$device" /mnt/pmem
        mkdir /mnt/pmem/database
        head -c 3000000 /dev/urandom >/mnt/pmem/database/table
        ln -s table /mnt/pmem/database/current
        umount /mnt/pmem
    done
}

# foreign: what must not change.
foreign() {
    local device
    ndctl list --namespaces --idle | jq -c '.[] | select(.size > 0 and (.name | startswith("splitfs-") | not)) | [.name, .uuid, .size, .mode]' | sort
    foreign_lvm vgs --noheadings --options vg_name,vg_uuid,vg_free,lv_count ndbus0region0fsdax
    for device in "$(blockdev_of "$pmemcsi_volume")" "$(blockdev_of pmem-csi)"; do sha256sum <"$device"; done
}

use_regions() {
    tests=(SPLITFS_TEST_REGIONS=lvm=region0,namespace=region1
        "SPLITFS_TEST_OLD=lvm=/dev/ndbus0region0fsdax/$pmemcsi_lvm,namespace=$(blockdev_of "$pmemcsi_volume")")
}

first_boot() {
    local regions before
    make_foreign
    # Nothing was given to the driver: nothing happens.
    regions=$(ndctl list --regions --namespaces --idle)
    devices >/run/devices
    cat /run/devices
    [ "$regions" = "$(ndctl list --regions --namespaces --idle)" ] || fail "looking changed something"
    grep -q "pmem-csi: volume $pmemcsi_volume is namespace namespace0.1" /run/devices || fail "the volume of pmem-csi is not reported"
    grep -q "namespace0.2 of region0 (.* MiB) is for its volume group" /run/devices || fail "the volume group of pmem-csi is not reported"
    is "what holds the foreign file system" "$(devices --json | jq -c '.[].namespaces[] | select(.name == "state") | [.owner, .holds]')" '["other",["ext4"]]'
    mkdir -p "$state"
    mount "$(blockdev_of state)" "$state"
    before=$(foreign)
    use_regions
    run_tests TestRealDevicesKilled 3
    run_tests TestRealDevicesClaimed 2
    run_tests TestRealDevicesCopied 3
    run_tests 'TestRealDevices$' 3
    is "what is left for the next boot" "$(ours | tr '\n' ' ')" "$kept splitfs-lvm $kept "
    [ "$before" = "$(foreign)" ] || fail "something that is not ours changed:
$before
--- now
$(foreign)"
    pass "nothing that is not ours changed"
    foreign | grep -v ndbus0 >"$state/foreign"
    umount "$state"
}

second_boot() {
    mkdir -p "$state"
    mount "$(blockdev_of state)" "$state"
    use_regions
    run_tests TestRealDevicesAgain 3
    # At last, because the kernel forgets bad blocks of this emulation only at a boot.
    run_tests TestRealDevicesBad 3
    is "what is left in the end" "$(ours | tr '\n' ' ')" "splitfs-lvm "
    [ "$(cat "$state/foreign")" = "$(foreign | grep -v ndbus0)" ] || fail "something that is not ours changed since the last boot"
    pass "nothing that is not ours changed since the last boot"
    umount "$state"
}
