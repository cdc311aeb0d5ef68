# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2034  # the parts of hack/vm share variables
# The persistent memory of a virtual machine, of every kind that QEMU knows.

# What a machine has besides NVDIMMs (vm_pmem); set by the caller, empty where he doesn't care.
#   vm_virtio   images of virtio-pmem devices
#   vm_cxl      images of CXL type 3 devices; IMAGE.labels is a device's label storage area
#   vm_volatile sizes in bytes of CXL type 3 devices that forget
declare -a vm_virtio=() vm_cxl=() vm_volatile=()

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

# volatile_size SIZE: prints it in bytes.
volatile_size() {
    local bytes
    bytes=$(numfmt --from=iec "$1" 2>/dev/null) || die "'$1' is not a size (like 1G)"
    if [ "$bytes" -lt "$CXL_UNIT" ] || [ $((bytes % CXL_UNIT)) != 0 ]; then die "volatile CXL memory of $1: must be a multiple of $((CXL_UNIT >> 20))M"; fi
    printf '%s\n' "$bytes"
}

# backend ID IMAGE: prints QEMU's words for a file as memory.
backend() { printf '%s\n' -object "memory-backend-file,id=$1,share=on,mem-path=$2,size=$(stat -c %s "$2"),align=2M"; }

# memory_words: prints QEMU's words for all of it, one a line.
memory_words() {
    local image n=0 labels=''
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
    cxl_words
}

# cxl_words: the part of it that is CXL memory: first what persists, then what does not.
cxl_words() {
    local image size n=0 windows=''
    for image in "${vm_cxl[@]}"; do
        backend "cx$n" "$image"
        backend "cl$n" "$image.labels"
        cxl_device $n "memdev=cx$n,lsa=cl$n"
        windows+=,cxl-fmw.$n.targets.0=cxlhost$n,cxl-fmw.$n.size=$(stat -c %s "$image")
        n=$((n + 1))
    done
    for size in "${vm_volatile[@]}"; do
        printf '%s\n' -object "memory-backend-ram,id=cv$n,share=on,size=$size"
        cxl_device $n "volatile-memdev=cv$n"
        windows+=,cxl-fmw.$n.targets.0=cxlhost$n,cxl-fmw.$n.size=$size
        n=$((n + 1))
    done
    [ -z "$windows" ] || printf '%s\n' -machine "${windows#,}" # QEMU wants to be told of all in one word
}

# cxl_device N MEMORY: each device has a host bridge and a window of its own: QEMU 7.2 knows one decoder of each. The host bridge has a second
# port, with nothing behind it: kernel 6.1 leaves the decoder of one that has a single port alone, and QEMU does not do without.
cxl_device() {
    printf '%s\n' -device "pxb-cxl,id=cxlhost$1,bus=pcie.0,bus_nr=$((64 + $1 * 16))" \
        -device "cxl-rp,id=cxlport$1,bus=cxlhost$1,port=0,chassis=$1,slot=2" \
        -device "cxl-rp,id=cxlnone$1,bus=cxlhost$1,port=1,chassis=$1,slot=3" \
        -device "cxl-type3,id=cxlmem$1,bus=cxlport$1,$2,sn=$((4096 + $1))"
}
