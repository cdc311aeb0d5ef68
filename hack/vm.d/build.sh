# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the tests run inside, built outside.

build_programs() {
    local source program out=$VM_BUILD/vm-bin
    mkdir -p "$out"
    for source in "$VM_PARTS"/programs/*.c; do
        program=$out/$(basename "$source" .c)
        [ "$program" -nt "$source" ] ||
            gcc -std=gnu11 -O2 -g -Wall -Wextra -Werror -D_GNU_SOURCE -o "$program" "$source" || die "cannot build $source"
    done
}

build_libsplit() {
    progress "building the library, the command and their tests"
    local source recover=()
    for source in "$REPO_DIR"/libsplit/test/recover/test_*.c; do
        recover+=("$VM_BUILD/test/plain/recover/$(basename "$source" .c)")
    done
    make -s -j2 -C "$REPO_DIR/libsplit" BUILD="$VM_BUILD" all test-progs "${recover[@]}" >&2 ||
        die "cannot build libsplit (see above)"
    mkdir -p "$VM_BUILD/vm-bin"
    gcc -std=gnu11 -O2 -g -Wall -Wextra -Werror -D_GNU_SOURCE -o "$VM_BUILD/vm-bin/model" "$REPO_DIR"/libsplit/test/model/*.c ||
        die "cannot build the model test"
}

# build_module LINE: BUILD/modules/RELEASE/ext4_splitfs.ko, for exactly the kernel that get_kernel chooses.
build_module() {
    get_kernel "$1"
    progress "building ext4_splitfs for $kernel_release"
    "$REPO_DIR/kernel-patch/build" --release "$kernel_release" --line "$1" --out "$VM_BUILD/modules/$kernel_release" >&2 ||
        die "cannot build the module for $kernel_release (see above)"
}
