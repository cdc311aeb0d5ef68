# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154  # sets what the other parts read
# The distribution's kernels. kernel-patch/fetch knows where they come from; nothing is installed on this machine.

known_line() {
    case " ${VM_KERNELS[*]} " in
    *" $1 "*) ;;
    *) usage_error "unknown kernel line '$1'; known: ${VM_KERNELS[*]}" ;;
    esac
}

# get_kernel LINE [newest]: sets kernel_release, kernel_image (a directory with boot/) and kernel_modules (a directory with
# lib/modules/), and kernel_build (more words for kernel-patch/build). Once fetched, a line keeps its release until `hack/vm prepare` asks for the newest: a boot needs no network.
get_kernel() {
    local line=$1 newest=${2:-} chosen=$VM_CACHE/kernel/$1 work
    known_line "$line"
    kernel_build=()
    case ${SPLITFS_VM_KERNEL:-stock} in
    stock) ;;
    debug | uml)
        get_own_kernel "$line" "$SPLITFS_VM_KERNEL"
        return
        ;;
    *) die "SPLITFS_VM_KERNEL='$SPLITFS_VM_KERNEL': known are stock, debug and uml" ;;
    esac
    need_commands "run hack/install-deps vm" depmod flock
    mkdir -p "$VM_CACHE/kernel" "$VM_CACHE/modules"
    if [ -n "$newest" ] || [ ! -s "$chosen" ]; then
        "$REPO_DIR/kernel-patch/fetch" --line "$line" --image >"$chosen.new.$$" || {
            rm -f "$chosen.new.$$"
            die "kernel $line cannot be fetched (see above)"
        }
        mv "$chosen.new.$$" "$chosen"
    fi
    # Shell assignments, written by kernel-patch/fetch.
    # shellcheck source=/dev/null
    . "$chosen"
    if [ ! -f "$kernel_image/boot/vmlinuz-$kernel_release" ]; then
        rm -f "$chosen"
        die "kernel $line: $kernel_image is gone or incomplete; try again to fetch it anew"
    fi
    kernel_modules=$VM_CACHE/modules/$kernel_release
    if [ ! -d "$kernel_modules" ]; then
        work=$(mktemp -d "$VM_CACHE/modules/.new.XXXXXX")
        TEMPORARY+=("$work")
        mkdir -p "$work/tree/lib/modules"
        cp -a "$kernel_image/lib/modules/$kernel_release" "$work/tree/lib/modules/"
        # The package leaves the index of modules to its installation.
        depmod -b "$work/tree" "$kernel_release"
        # Another run may have been quicker; its tree is the same.
        mv -T "$work/tree" "$kernel_modules" 2>/dev/null || [ -d "$kernel_modules" ]
    fi
}
