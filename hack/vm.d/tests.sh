# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2034  # the parts of hack/vm share variables
# The tests of hack/vm test: the table, and those that are more than a job inside.

# What a stock kernel can be asked to watch in its own memory: freed and neighbouring objects (FZPU: checks, red zones, poison, owners),
# freed pages, and from 6.12 on a sample of objects between guard pages.
WATCHED="append=slub_debug=FZPU append=page_poison=1 append=kfence.sample_interval=1"

# The seconds are there for what hangs: a busy host takes three times as long as a calm one.
# NAME | kernel lines | seconds | what must be built, NVDIMMs, words for the kernel | what it shows
# A test runs guest/jobs/NAME inside, or, where test_NAME is a function, that function outside.
VM_TESTS=(
    "oracle | 6.1 | 60 | programs | the power cuts' oracle accepts what is right and notices what is wrong (needs no machine)"
    "patches | 6.1 6.12 7.3 | 600 | | the kernel patches apply, pass checkpatch and compile (needs no machine)"
    "dax | 6.1 6.12 | 120 | programs module | DAX is real: statx, MAP_SYNC, 2 MiB faults counted; and is not where it should not be"
    "aged | 6.1 6.12 | 480 | programs module libsplit | a staging pool made on an aged volume gets 2 MiB mappings"
    "relink | 6.1 6.12 7.3 | 3600 | relink $WATCHED | conformance of relink, e2fsck after each kind of file system"
    "relink-broken | 6.1 6.12 7.3 | 3600 | relink $WATCHED | relinks that cannot be undone: the journal aborts, or the undoing fails; what e2fsck and a mount find"
    "relink-stress | 6.1 6.12 7.3 | 900 | relink $WATCHED | relink against faults, truncates and itself from several processes, e2fsck after each"
    "module | 6.1 6.12 | 0 | | the node's module manager: what it loads, refuses and reports (builds what it needs)"
    "devices | 6.1 6.12 | 0 | | the CSI driver's volumes on LVM and on namespaces, killed half made and after a reboot (builds what it needs)"
    "devices-plain | 6.1 6.12 | 0 | | volumes on memory without labels; virtio-pmem and memory that holds something refused (builds what it needs)"
    "devices-cxl | 6.1 6.12 | 0 | | volumes on CXL memory, before and after a reboot (builds what it needs)"
    "devices-classes | 6.12 | 0 | | device classes: volumes in the volume groups of their class, what classes spare, a reboot without classes (builds what it needs)"
    "devices-thin | 6.1 6.12 | 0 | | thin pools: snapshots and groups of them while volumes are written, a full pool, a reboot (builds what it needs)"
    "snapshots | 6.1 6.12 | 600 | changes module pmem=512M pmem=512M | which bytes of a file system with DAX in use cannot have changed"
    "memory | 6.1 6.12 | 300 | libsplit-few | what memory is taken for: NVDIMMs with ADR, eADR and without a word, CXL (volatile too), virtio-pmem, memmap="
    "selinux | 6.1 6.12 | 900 | driver module selinux pmem=512M pmem=512M pmem=512M | programs of pods with SELinux enforcing: what is served, and what is denied"
    "evaluation | 6.1 | 0 | | rows of libsplit/bench/paper run on DAX in every mode (builds what it needs)"
    "libsplit-ext4 | 6.1 6.12 | 3000 | module libsplit pmem=1G pmem=512M | libsplit's own tests on ext4 with our module"
    "libsplit-xfs | 6.12 | 3000 | libsplit pmem=1G pmem=512M | libsplit's own tests on XFS with stock exchange-range"
    "power-cut-ext4 | 6.1 6.12 | 0 | programs module libsplit | power cuts on ext4 with our module, recovery, every acknowledged write"
    "power-cut-xfs | 6.12 | 0 | programs libsplit | power cuts on XFS with stock exchange-range"
)

# hack/vm test --quick: real DAX in ten minutes, for whoever changes something. One module serves all: with simulate_fail, never set.
DEBUG_MODULE="relink env=VM_MODULE_KIND=debug"
VM_QUICK=(
    "oracle | 6.12 | 60 | programs | the power cuts' oracle accepts what is right and notices what is wrong (needs no machine)"
    "relink-quick | 6.12 6.1 | 420 | relink $WATCHED | relink on DAX with quota, and after shutdowns; e2fsck after each"
    "libsplit-quick | 6.12 | 300 | $DEBUG_MODULE libsplit-few pmem=1G pmem=512M | libsplit on ext4 with our module: what it finds, relink and calls against models"
    "dax | 6.12 | 120 | programs $DEBUG_MODULE | DAX is real: statx, MAP_SYNC, 2 MiB faults counted; and is not where it should not be"
)
# On an idle machine; a busy one may be given more.
VM_QUICK_SECONDS=${VM_QUICK_SECONDS:-600}

# oracle_of_exchanges DIR: the same for the two files that exchange blocks.
oracle_of_exchanges() {
    local powercut=$VM_BUILD/vm-bin/powercut work=$1 ops seed byte
    accepted() { "$powercut" check-exchange "$work/files" "$work/acks" 0 "$seed" >/dev/null 2>&1; }
    for ops in 1 30 400; do
        seed=$((VM_SEED + ops))
        rm -rf "$work/files"
        mkdir "$work/files"
        "$powercut" make-exchange "$work/files" "$work/acks" 0 "$seed" "$ops"
        accepted || die "exchange: what $ops operations left is refused"
        "$powercut" mark "$work/acks" 0 $((ops - 1))
        accepted || die "exchange: the operation in flight is refused as done"
        "$powercut" mark "$work/acks" 0 $((ops + 100))
        ! accepted || die "exchange: 100 acknowledged operations are lost after $ops, and that is accepted"
        "$powercut" mark "$work/acks" 0 "$ops"
        for byte in 0 4095 200000 393215; do
            printf x | dd of="$work/files/e1" bs=1 seek="$byte" conv=notrunc status=none
            ! accepted || die "exchange: byte $byte is changed after $ops operations, and that is accepted"
            checked=$((checked + 1))
            rm -rf "$work/files"/e?
            "$powercut" make-exchange "$work/files" "$work/acks" 0 "$seed" "$ops"
        done
    done
}

# test_oracle LINE DIR: without a machine, in a second: every prefix the oracle accepts is one it should, and no damage escapes it.
test_oracle() {
    local powercut=$VM_BUILD/vm-bin/powercut work mode ops seed file size checked=0
    work=$(mktemp -d "$2/oracle.XXXXXX")
    truncate -s 4096 "$work/acks"
    accepts() { "$powercut" check "$1" "$work/files" "$work/acks" 0 "$seed" >/dev/null; }
    for ops in 1 17 300 1500; do
        seed=$((VM_SEED + ops))
        rm -rf "$work/files"
        mkdir "$work/files"
        "$powercut" load "$work/files" "$work/acks" 0 "$seed" "$ops"
        for mode in posix sync strict; do
            "$powercut" mark "$work/acks" 0 "$ops"
            accepts "$mode" || die "$mode refuses what $ops operations left"
            "$powercut" mark "$work/acks" 0 $((ops - 1))
            accepts "$mode" || die "$mode refuses the operation in flight as done"
            "$powercut" mark "$work/acks" 0 $((ops + 40))
            ! accepts "$mode" 2>/dev/null || die "$mode accepts that 40 acknowledged operations are lost, after $ops"
            "$powercut" mark "$work/acks" 0 "$ops"
            for file in "$work"/files/*; do
                size=$(stat -c %s "$file")
                [ "$size" -gt 0 ] || continue
                cp "$file" "$work/kept"
                head -c 16 "$work/kept" | tr '\000-\377' '\200-\377\000-\177' | dd of="$file" bs=16 conv=notrunc status=none
                ! accepts "$mode" 2>/dev/null || die "$mode accepts a changed first byte of ${file##*/}, after $ops"
                truncate -s $((size - 1)) "$file"
                ! accepts "$mode" 2>/dev/null || die "$mode accepts a lost last byte of ${file##*/}, after $ops"
                cp "$work/kept" "$file"
                checked=$((checked + 2))
            done
            touch "$work/files/stranger"
            ! accepts "$mode" 2>/dev/null || die "$mode accepts a file that was never created"
            rm "$work/files/stranger"
        done
    done
    oracle_of_exchanges "$work"
    echo "$checked damages noticed, none missed"
    rm -rf "$work"
}

power_cut_test() {
    exec "$HACK_DIR/vm" power-cut --kernel "$2" --type "$1" --cuts "$VM_CUTS" --seed "$VM_SEED" --name "$t_name@$2"
}
test_patches() { exec "$REPO_DIR/kernel-patch/test/check" "$1"; }
test_power_cut_ext4() { power_cut_test ext4_splitfs "$1"; }
test_module() { exec "$REPO_DIR/csi-driver/test/vm-module" --kernel "$1"; }
devices_test() { exec "$REPO_DIR/csi-driver/test/vm-devices" --kernel "$2" "$1"; }
test_devices() { devices_test labels "$1"; }
test_devices_plain() { devices_test plain "$1"; }
test_devices_cxl() { devices_test cxl "$1"; }
test_devices_classes() { devices_test classes "$1"; }
test_devices_thin() { devices_test thin "$1"; }

# test_memory LINE: several machines, because one cannot say two things of its NVDIMMs, and volatile CXL memory wants a newer QEMU.
test_memory() {
    local run=("$REPO_DIR/hack/vm" run --kernel "$1" --timeout 300 --no-namespaces)
    "${run[@]}" --name "memory-all@$1" --persistence none --pmem 96M --virtio-pmem 176M --cxl 256M --append 'memmap=192M!1G' --memory 2G -- memory unstated
    "${run[@]}" --name "memory-adr@$1" --pmem 512M --pmem 96M -- memory adr
    "${run[@]}" --name "memory-eadr@$1" --persistence cpu --pmem 512M -- memory eadr
    # Kernel 6.1 makes no regions of volatile CXL memory (6.3 does).
    [ "$1" = 6.1 ] || "${run[@]}" --name "memory-volatile@$1" --cxl 256M --cxl-volatile 256M --memory 2G -- memory volatile
}

# test_evaluation LINE DIR: one row of calls and one of programs, a round each; the exit status is 1 where one failed.
test_evaluation() {
    make -s -C "$REPO_DIR/libsplit" BUILD="$VM_BUILD" all bench-progs
    BUILD=$VM_BUILD "$REPO_DIR/libsplit/bench/paper" --grounds dax --quick --fresh --only mails untar --out "$2/evaluation"
    for mode in plain durable posix sync strict; do
        for row in mails untar; do
            grep -q "\"ground\": \"dax\", \"row\": \"$row\", \"round\": 0, \"mode\": \"$mode\", \"wall_s\"" "$2/evaluation/samples.jsonl" ||
                die "$row was not measured in mode $mode"
        done
    done
    grep -q 'ext4 DAX in a virtual machine' "$2/evaluation/evaluation.md" || die "the page does not say where it was"
}
test_power_cut_xfs() { power_cut_test xfs-exchange "$1"; }
