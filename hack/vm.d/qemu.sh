# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2034  # the parts of hack/vm share variables
# The emulator: the machine's own, or that of VM_SUITE for what the machine's may not know.

# get_newer_qemu: sets qemu to the words that start VM_SUITE's QEMU, out of a tree of its own, making that if necessary: Debian 12's
# knows no volatile CXL memory. Nothing of it is installed on this machine.
get_newer_qemu() {
    local key tree work log
    key=$(printf '%s\n' "$VM_QEMU_RECIPE" "$VM_SUITE" "$VM_MIRROR" "${VM_QEMU_PACKAGES[@]}" | sha256sum)
    tree=$VM_CACHE/qemu/$VM_SUITE-${key:0:16}
    mkdir -p "$VM_CACHE/qemu"
    exec {qemu_lock}>"$VM_CACHE/qemu/lock"
    flock "$qemu_lock"
    if [ ! -d "$tree" ]; then
        need_root "unpacking QEMU of Debian $VM_SUITE (once)"
        need_commands "run hack/install-deps vm" debootstrap
        progress "QEMU of Debian $VM_SUITE (once, some minutes)"
        work=$(mktemp -d "$VM_CACHE/qemu/.qemu.XXXXXX")
        TEMPORARY+=("$work")
        log=$work/log
        debootstrap --variant=minbase --include="$(IFS=,; echo "${VM_QEMU_PACKAGES[*]}")" "$VM_SUITE" "$work/root" "$VM_MIRROR" \
            >"$log" 2>&1 || {
            tail -n 20 "$log" >&2
            die "debootstrap of $VM_SUITE from $VM_MIRROR failed (see above)"
        }
        rm -rf "$work"/root/usr/share/{doc,man,locale,info} "$work"/root/var/{lib/apt/lists,cache/apt}
        mv "$work/root" "$tree"
        rm -rf "$work"
    fi
    exec {qemu_lock}>&-
    # Its own loader and libraries; -L is where firmware is.
    qemu=(env "QEMU_MODULE_DIR=$tree/usr/lib/x86_64-linux-gnu/qemu" "$tree/usr/lib64/ld-linux-x86-64.so.2"
        --library-path "$tree/usr/lib/x86_64-linux-gnu" "$tree/usr/bin/qemu-system-x86_64" -L "$tree/usr/share/qemu" -L "$tree/usr/share/seabios")
}
