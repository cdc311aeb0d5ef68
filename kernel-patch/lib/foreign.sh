# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# shellcheck disable=SC2154  # line_* come from line.conf, headers and release from build
# Compiling for a kernel whose compiler and programs are those of a newer Debian: in a small one of its own. To be sourced after common.sh.

FOREIGN_PACKAGES=(binutils gcc-14 kmod libelf1t64 libssl3t64 make)

# headers_compiler: the compiler that the kernel's headers want.
headers_compiler() {
    sed -n 's/^CONFIG_CC_VERSION_TEXT="\([^ "]*\).*/\1/p' "$headers/.config"
}

# runs_here: do the headers' own programs find their libraries here, and is their compiler here?
runs_here() {
    local program
    command -v "$(headers_compiler)" >/dev/null || return 1
    for program in scripts/basic/fixdep scripts/mod/modpost tools/objtool/objtool; do
        [ ! -x "$headers/$program" ] || ! ldd "$headers/$program" 2>&1 | grep -q 'not found' || return 1
    done
}

# get_foreign WHY: sets foreign to the directory of the line's Debian (line_build_suite), making it if necessary.
get_foreign() {
    local key log
    key=$(printf '%s\n' "$line_build_suite" "${FOREIGN_PACKAGES[@]}" | sha256sum | cut -c1-16)
    foreign=$KERNEL_CACHE/build-$line_build_suite-$key
    [ "$(id -u)" = 0 ] || die "$1: build as root, which uses a Debian $line_build_suite in $KERNEL_CACHE, or on that Debian"
    lock build-root
    [ ! -d "$foreign" ] || return 0
    [ -z "$offline" ] || die "$1, and --offline forbids fetching them"
    need_commands "install debootstrap and util-linux" debootstrap unshare chroot
    new_directory "$KERNEL_CACHE"
    log=$made/log
    progress "$1: fetching a Debian $line_build_suite to compile in (once, some minutes)"
    debootstrap --variant=minbase --include="$(IFS=, && echo "${FOREIGN_PACKAGES[*]}")" "$line_build_suite" "$made/root" \
        "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$log" 2>&1 || {
        tail -n 20 "$log" >&2
        die "debootstrap of $line_build_suite failed (see above)"
    }
    rm -rf "$made"/root/usr/share/{doc,man,locale,info}/* "$made"/root/var/lib/apt/lists/* "$made"/root/var/cache/apt/*
    mv -T "$made/root" "$foreign"
}

# find_tools: sets tools, the words before a command that works with the headers, and tools_name, which says which these are.
find_tools() {
    tools=() tools_name="$(headers_compiler) $(gcc -dumpfullversion)"
    # For another distribution's headers make says what is missing.
    if [ -n "${line_build_suite:-}" ] && ! runs_here; then
        get_foreign "the headers of $release need $(headers_compiler) and libraries that are not here"
        tools=(in_foreign) tools_name=${foreign##*/}
    fi
}

# in_foreign COMMAND...: runs there; the directories that it needs are seen under the same names, by this command only.
in_foreign() {
    local words=("$foreign" "$KERNEL_CACHE" "$headers" /dev /proc) file
    for file in ${sign_key:+"$sign_key"} ${sign_cert:+"$sign_cert"} "$out/module"; do
        [ "${file%/*}" != "" ] || die "$file lies in the root directory, which cannot be shown to the compiler's Debian"
        words+=("${file%/*}")
    done
    # shellcheck disable=SC2016  # the inner shell's
    unshare --mount bash -euc '
        root=$1
        shift
        while [ "$1" != -- ]; do
            mkdir -p "$root$1"
            mount --bind "$1" "$root$1"
            shift
        done
        shift
        exec chroot "$root" /usr/bin/env PATH=/usr/sbin:/usr/bin "$@"' in_foreign "${words[@]}" -- "$@"
}
