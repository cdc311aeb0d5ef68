# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2034  # the parts of hack/vm share variables
# The persistent memory of a virtual machine, of every kind that QEMU knows.

# What a machine has besides NVDIMMs (vm_pmem); set by the caller, empty where he doesn't care.
#   vm_virtio   images of virtio-pmem devices
#   vm_cxl      images of CXL type 3 devices; IMAGE.labels is a device's label storage area
declare -a vm_virtio=() vm_cxl=()

# The window of addresses that each CXL device is reached through must be a multiple of this, and so must its size.
CXL_UNIT=$((256 << 20))

# pmem_image PATH SIZE [MORE]: an image of SIZE and MORE bytes; one that exists keeps its size.
pmem_image() {
    local path=$1 size=$2 bytes
    bytes=$(numfmt --from=iec "$size" 2>/dev/null) || die "'$size' is not a size (like 1G)"
    if [ $((bytes % (2 << 20))) != 0 ] || [ "$bytes" -lt $((64 << 20)) ]; then
        die "persistent memory of $size: must be a multiple of 2M and at least 64M"
    fi
    bytes=$((bytes + ${3:-0}))
    if [ -f "$path" ]; then
        [ "$(stat -c %s "$path")" = "$bytes" ] ||
            die "$path exists with $(stat -c %s "$path") bytes, not $size; remove it or ask for its size"
    else
        mkdir -p "$(dirname "$path")"
        truncate -s "$bytes" "$path.new"
        mv "$path.new" "$path"
    fi
}

# cxl_image PATH SIZE: a CXL device's image and its label storage area.
cxl_image() {
    pmem_image "$1" "$2"
    [ $(($(stat -c %s "$1") % CXL_UNIT)) = 0 ] || die "CXL memory of $2: must be a multiple of $((CXL_UNIT >> 20))M"
    [ -f "$1.labels" ] || truncate -s 256K "$1.labels"
}

# backend ID IMAGE: prints QEMU's words for a file as memory.
backend() { printf '%s\n' -object "memory-backend-file,id=$1,share=on,mem-path=$2,size=$(stat -c %s "$2"),align=2M"; }

# memory_words: prints QEMU's words for all of it, one a line.
memory_words() {
    local image n=0 labels='' windows=''
    # QEMU refuses a size of 0.
    [ "$vm_labels" = 0 ] || labels=,label-size=$vm_labels
    for image in "${vm_pmem[@]}"; do
        backend "pm$n" "$image"
        printf '%s\n' -device "nvdimm,id=nv$n,memdev=pm$n,unarmed=off$labels"
        n=$((n + 1))
    done
    n=0
    for image in "${vm_virtio[@]}"; do
        backend "vp$n" "$image"
        printf '%s\n' -device "virtio-pmem-pci,id=vpmem$n,memdev=vp$n"
        n=$((n + 1))
    done
    # Each device has a host bridge and a window of its own: this QEMU knows one decoder of each. The host bridge has a second port, with
    # nothing behind it: kernel 6.1 leaves the decoder of one that has a single port alone, and QEMU does not do without.
    n=0
    for image in "${vm_cxl[@]}"; do
        backend "cx$n" "$image"
        backend "cl$n" "$image.labels"
        printf '%s\n' -device "pxb-cxl,id=cxlhost$n,bus=pcie.0,bus_nr=$((64 + n * 16))" \
            -device "cxl-rp,id=cxlport$n,bus=cxlhost$n,port=0,chassis=$n,slot=2" \
            -device "cxl-rp,id=cxlnone$n,bus=cxlhost$n,port=1,chassis=$n,slot=3" \
            -device "cxl-type3,id=cxlmem$n,bus=cxlport$n,memdev=cx$n,lsa=cl$n,sn=$((4096 + n))"
        windows+=,cxl-fmw.$n.targets.0=cxlhost$n,cxl-fmw.$n.size=$(stat -c %s "$image")
        n=$((n + 1))
    done
    [ -z "$windows" ] || printf '%s\n' -machine "${windows#,}" # QEMU wants to be told of all in one word
}
