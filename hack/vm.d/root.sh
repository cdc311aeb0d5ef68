# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2034  # the parts of hack/vm share variables
# What the virtual machine runs: one read-only root file system, and per kernel an initial RAM disk that mounts it.

# get_root: sets root_image to the path of the root image, making it if necessary. It is named by what went in.
get_root() {
    local key image work log
    key=$(printf '%s\n' "$VM_ROOT_RECIPE" "$VM_SUITE" "$VM_MIRROR" "${VM_PACKAGES[@]}" | sha256sum)
    image=$VM_CACHE/root/$VM_SUITE-${key:0:16}.img
    mkdir -p "$VM_CACHE/root"
    exec {root_lock}>"$image.lock"
    flock "$root_lock" # two runs that both find it missing make it once
    if [ ! -f "$image" ]; then
        need_root "making the virtual machine's root file system (once)"
        need_commands "run hack/install-deps vm" debootstrap mke2fs
        progress "root file system: Debian $VM_SUITE with ${#VM_PACKAGES[@]} packages (once, some minutes)"
        work=$(mktemp -d "$VM_CACHE/root/.root.XXXXXX")
        TEMPORARY+=("$work")
        log=$work/log
        debootstrap --variant=minbase --include="$(IFS=,; echo "${VM_PACKAGES[*]}")" "$VM_SUITE" "$work/root" "$VM_MIRROR" \
            >"$log" 2>&1 || {
            tail -n 20 "$log" >&2
            [ ! -f "$work/root/debootstrap/debootstrap.log" ] || tail -n 20 "$work/root/debootstrap/debootstrap.log" >&2
            die "debootstrap of $VM_SUITE from $VM_MIRROR failed (see above)"
        }
        rm -rf "$work"/root/usr/share/{doc,man,locale,info}/* "$work"/root/var/lib/apt/lists/* "$work"/root/var/cache/apt/*
        # Mount points of the parts that change: the kernel's modules, programs and results.
        mkdir -p "$work/root/usr/lib/modules" "$work/root/mnt/pmem"
        echo splitfs-vm >"$work/root/etc/hostname"
        truncate -s $(($(du -sm "$work/root" | cut -f1) * 13 / 10 + 64))M "$work/image"
        mke2fs -q -t ext4 -O ^has_journal -m 0 -d "$work/root" "$work/image" >"$log" 2>&1 || {
            cat "$log" >&2
            die "mke2fs could not make the root image (see above)"
        }
        mv "$work/image" "$image"
        rm -rf "$work"
    fi
    exec {root_lock}>&-
    root_image=$image
}

# Modules that the initial RAM disk loads before the root file system's own modprobe can be used, in no order. A real machine has the
# checksums of the processor, too: without them ext4's own cost several times as much.
INITRD_MODULES=(virtio_pci virtio_blk ext4 crc32c_generic crc32c_intel overlay 9pnet_virtio 9p)

# module_closure TREE RELEASE NAME...: the files of modules and of all they need, dependencies first, below lib/modules/RELEASE.
module_closure() {
    local base=$1/lib/modules/$2
    shift 2
    awk -v names="$*" '
        BEGIN { count = split(names, name, " ") }
        {
            file = $1; sub(/:$/, "", file)
            short = file; sub(/.*\//, "", short); sub(/\.ko.*/, "", short); gsub(/-/, "_", short)
            path[short] = file
            for (i = 2; i <= NF; i++) needs[file] = $i " " needs[file]
        }
        END {
            for (i = 1; i <= count; i++) {
                if (!(name[i] in path)) continue # built in
                list = needs[path[name[i]]] path[name[i]]
                parts = split(list, part, " ")
                for (j = 1; j <= parts; j++) if (!seen[part[j]]++) print part[j]
            }
        }' "$base/modules.dep"
}

# get_initrd: sets initrd_image to the path of the initial RAM disk for the kernel that get_kernel found.
get_initrd() {
    local key out work module name
    key=$({ printf '%s\n' "$kernel_release" "${INITRD_MODULES[@]}"; cat "$VM_PARTS/root.sh" "$VM_PARTS/guest/init"; } | sha256sum)
    out=$VM_CACHE/initrd/$kernel_release-${key:0:16}.cpio
    if [ ! -f "$out" ]; then
        need_commands "run hack/install-deps vm" busybox cpio xz
        mkdir -p "$VM_CACHE/initrd"
        work=$(mktemp -d "$VM_CACHE/initrd/.initrd.XXXXXX")
        TEMPORARY+=("$work")
        mkdir -p "$work"/root/{bin,dev,proc,sys,new,upper,lower,modules}
        cp "$(command -v busybox)" "$work/root/bin/busybox"
        ldd "$work/root/bin/busybox" >/dev/null 2>&1 && die "busybox is not a static program; run hack/install-deps vm"
        install -m 755 "$VM_PARTS/guest/init" "$work/root/init"
        : >"$work/root/modules/order" # a kernel may have everything built in
        while read -r module; do
            name=${module##*/}
            name=${name%.xz}
            case $module in
            *.xz) xz -dc "$kernel_modules/lib/modules/$kernel_release/$module" >"$work/root/modules/$name" ;;
            *) cp "$kernel_modules/lib/modules/$kernel_release/$module" "$work/root/modules/$name" ;;
            esac
            printf '%s\n' "$name" >>"$work/root/modules/order"
        done < <(module_closure "$kernel_modules" "$kernel_release" "${INITRD_MODULES[@]}")
        (cd "$work/root" && find . | cpio --quiet -o -H newc) >"$work/initrd"
        mv "$work/initrd" "$out"
        rm -rf "$work"
    fi
    initrd_image=$out
}
