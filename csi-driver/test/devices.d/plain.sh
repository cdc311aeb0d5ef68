# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2034  # of vm-devices
# Regions without labels: NVDIMMs that never had any, virtio-pmem, memory of the kernel's command line. Each is one namespace that nobody
# can mark, so what is on it decides, and all of them are given to the driver (regions: all).

# Sizes tell the regions apart: the kernel numbers them in the order in which they answer.
machine=(--pmem 1G --pmem 96M --pmem 112M --pmem 128M --pmem 144M --pmem 160M --virtio-pmem 176M --append 'memmap=192M!1G' --memory 2G)

# region MIB: the region of this size.
region() { ndctl list --regions | jq -er --argjson size "$1" '.. | objects | select(.type == "pmem" and .size == $size * 1048576) | .dev'; }

# dev MIB: the block device of the region of this size, which is one namespace.
dev() { echo "/dev/pmem$(region "$1" | tr -dc 0-9)"; }

# fsdax MIB: what an operator does before the driver, or anybody, can use the region.
fsdax() { ndctl create-namespace --force --reconfig="$(region "$1" | sed 's/region//; s/.*/namespace&.0/')" --mode=fsdax --align=2M >/dev/null; }

# What the regions hold: 1024 nothing, 96 the file system of these tests, 112 a file system, 128 what no program marks, 144 somebody's
# volume group, 160 is raw with something far behind its beginning, 176 is virtio-pmem, 192 comes without a header.
foreign_sizes=(112 128 144)

make_foreign() {
    local size
    for size in 1024 96 "${foreign_sizes[@]}"; do fsdax "$size"; done
    mkfs.ext4 -q -F -b 4096 "$(dev 96)"
    mkfs.ext4 -q -F -b 4096 "$(dev 112)"
    head -c 100 /dev/urandom | dd of="$(dev 128)" bs=1 seek=$(($(blockdev --getsize64 "$(dev 128)") - 3000000)) conv=notrunc status=none
    foreign_lvm vgcreate --quiet --quiet stranger "$(dev 144)"
    head -c 100 /dev/urandom | dd of="$(dev 160)" bs=1 seek=5000000 conv=notrunc status=none
    head -c 100 /dev/urandom | dd of="$(dev 176)" bs=1 seek=5000000 conv=notrunc status=none
}

# foreign SIZE...: what must not change.
foreign() {
    local size
    for size in "$@"; do echo "$size $(ndctl list --namespaces --region="$(region "$size")" | jq -c '.[] | [.uuid, .size, .mode]') $(sha256sum <"$(dev "$size")")"; done
}

# What the driver must say of each region; first of those that some advice helps.
refuse() {
    local size words
    refused=''
    while read -r size words; do
        case " $* " in *" $size "*) ;; *) refused+="lvm $(region "$size") $words"$'\n' ;; esac
    done <<EOT
96 is in use: it holds ext4
112 is in use: it holds ext4
128 holds data that no program has marked as its own
144 is in volume group "stranger", which is not this driver's
160 has mode "raw"
176 it is of virtio-pmem, where a store is durable only after fsync
192 has mode "fsdax", UUID ""
EOT
    for size in 1024 96 112 128 144 160 192; do refused+="namespace $(region "$size") it has no labels"$'\n'; done
    refused+="namespace $(region 176) it is of virtio-pmem, where a store is durable only after fsync"
    tests=("SPLITFS_TEST_REFUSED=$refused" SPLITFS_TEST_NONE=namespace)
}

# follow MIB WORDS: does what the driver advised for this region, in its own words.
follow() {
    local advice
    # The driver's own log has all regions in one line.
    advice=$(grep -vE '^[EIW][0-9]{4} ' "$log" | grep -o "\<$(region "$1"): .*" | head -n 1 | grep -oE 'ndctl create-namespace --force --reconfig=[^ ]+ --mode=fsdax --align=2M|wipefs --all [^ ]+ && blkdiscard --zeroout [^ ]+') ||
        fail "no advice for the region of $1 MiB"
    [[ $advice == "$2"* ]] || fail "the advice for the region of $1 MiB is '$advice', wanted '$2'"
    (eval "$advice") >/dev/null || fail "$advice"
    pass "$advice"
}

look() {
    local before size
    before=$(ndctl list --regions --namespaces --idle)
    devices --regions all >/run/devices
    cat /run/devices
    [ "$before" = "$(ndctl list --regions --namespaces --idle)" ] || fail "looking changed something"
    for size in 1024 96 112 128 144 160 176 192; do
        grep -qE "^$(region "$size") +\(no labels\) +[^ ]+ +[a-z]+ +$size +0 +true" /run/devices || fail "the region of $size MiB is not shown as it is"
    done
    grep -qE "^$(region 176) .* virtio-pmem " /run/devices || fail "virtio-pmem is not shown"
    grep -qF "$(region 176): never used: it is of virtio-pmem" /run/devices || fail "that virtio-pmem is never used is not shown"
    grep -qE "^$(region 1024) .* ACPI.NFIT +adr " /run/devices || fail "that the NVDIMM is behind ADR is not shown"
    grep -qE "^$(region 192) .* e820 +volatile " /run/devices || fail "memory of the command line is not shown"
    grep -qF "$(region 1024): no labels: " /run/devices || fail "what to do without labels is not shown"
    pass "all regions are shown, and why some are not used"
}

first_boot() {
    local before
    modprobe nd_e820
    make_foreign
    mkdir -p "$state"
    mount "$(dev 96)" "$state"
    look
    before=$(foreign "${foreign_sizes[@]}" 160 176 192)
    refuse
    run_tests TestRealRefused 3
    is "regions with something of the driver" "$(foreign_lvm vgs --noheadings --options pv_name @splitfs.io | tr -d ' ')" "$(dev 1024)"
    tests=(SPLITFS_TEST_REGIONS=lvm=all)
    run_tests 'TestRealDevices$' 2
    is "what is left for the next boot" "$(ours | tr '\n' ' ')" "$kept "
    is "what is not ours" "$(foreign "${foreign_sizes[@]}" 160 176 192)" "$before"

    # What the driver says that helps does help.
    refuse
    run_tests TestRealRefused 3
    follow 160 ndctl
    follow 192 ndctl
    before=$(foreign "${foreign_sizes[@]}" 176)
    refused=${refused/has mode \"raw\"/holds data that no program has marked}
    tests=("SPLITFS_TEST_REFUSED=$(grep -v "^lvm $(region 192) " <<<"$refused")" SPLITFS_TEST_NONE=namespace)
    run_tests TestRealRefused 3
    follow 160 wipefs
    refuse 160 192
    run_tests TestRealRefused 3
    is "regions with something of the driver" "$(foreign_lvm vgs --noheadings --options pv_name @splitfs.io | tr -d ' ' | sort | tr '\n' ' ')" \
        "$(for size in 1024 160 192; do dev "$size"; done | sort | tr '\n' ' ')"
    is "what is not ours" "$(foreign "${foreign_sizes[@]}" 176)" "$before"
    echo "$before" >"$state/foreign"
    umount "$state"
}

second_boot() {
    modprobe nd_e820 # what it had is gone: this machine's main memory does not outlive it
    mkdir -p "$state"
    mount "$(dev 96)" "$state"
    tests=(SPLITFS_TEST_REGIONS=lvm=all)
    run_tests TestRealDevicesAgain 2
    is "what is left in the end" "$(ours)" ""
    is "what is not ours" "$(foreign "${foreign_sizes[@]}" 176)" "$(cat "$state/foreign")"
    refuse 160
    run_tests TestRealRefused 3
    umount "$state"
}
