# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# The distribution's kernels, unpacked into the cache: nothing is installed on this machine.

# The meta package that names the newest kernel of a line.
kernel_meta() {
    case $1 in
    6.1) echo linux-image-amd64 ;;
    6.12) echo linux-image-6.12-amd64 ;;
    *) die "unknown kernel line '$1'; known: ${VM_KERNELS[*]}" ;;
    esac
}

# get_kernel LINE: sets kernel_tree to the directory that holds boot/vmlinuz-* and lib/modules/* of a line, and kernel_release to
# what uname -r says there; fetches the kernel if necessary.
get_kernel() {
    local line=$1 meta package dir work releases
    meta=$(kernel_meta "$line") || exit
    dir=$VM_CACHE/kernel/$line
    if [ ! -d "$dir" ]; then
        need_commands "run hack/install-deps vm" apt-get apt-cache dpkg-deb depmod
        package=$(apt-cache depends "$meta" | awk '$1 == "Depends:" && $2 ~ /^linux-image-/ {print $2; exit}')
        [ -n "$package" ] || die "apt knows no package $meta; run 'apt-get update' with Debian 12's security archive configured"
        progress "kernel $line: fetching $package"
        mkdir -p "$VM_CACHE/kernel"
        work=$(mktemp -d "$VM_CACHE/kernel/.$line.XXXXXX")
        TEMPORARY+=("$work")
        (cd "$work" && apt-get -o APT::Sandbox::User=root download "$package" >apt.log 2>&1) || {
            cat "$work/apt.log" >&2
            die "cannot fetch $package (see above); try 'apt-get update'"
        }
        dpkg-deb -x "$work"/linux-image-*.deb "$work/tree"
        depmod -b "$work/tree" "$(ls "$work/tree/lib/modules")"
        mv -T "$work/tree" "$dir"
        rm -rf "$work"
    fi
    releases=("$dir"/lib/modules/*/)
    [ ${#releases[@]} = 1 ] && [ -d "${releases[0]}" ] || die "$dir does not hold exactly one kernel; remove it and try again"
    kernel_tree=$dir
    kernel_release=$(basename "${releases[0]}")
}
