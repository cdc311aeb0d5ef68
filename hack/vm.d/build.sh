# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2034  # the parts of hack/vm share variables
# What the tests run inside, built outside.

build_programs() {
    local source=$VM_PARTS/programs
    mkdir -p "$VM_BUILD/vm-bin"
    build_program dax_check "$source/dax_check.c"
    build_program powercut "$source"/powercut*.c
}

# build_program NAME SOURCE...
build_program() {
    local program=$VM_BUILD/vm-bin/$1
    shift
    # Replaced at once: a machine that runs the old one keeps it.
    gcc -std=gnu11 -O2 -g -Wall -Wextra -Werror -D_GNU_SOURCE -o "$program.new" "$@" || die "cannot build ${program##*/}"
    mv "$program.new" "$program"
}

# make_libsplit WHAT TARGET...: the library, the command, and what else is named.
make_libsplit() {
    local log=$VM_BUILD/vm-bin/build.log
    progress "building the library, the command and $1"
    shift
    mkdir -p "$VM_BUILD/vm-bin"
    make -s -j2 -C "$REPO_DIR/libsplit" BUILD="$VM_BUILD" all "$@" >"$log" 2>&1 || {
        tail -n 30 "$log" >&2
        die "cannot build libsplit (see above)"
    }
}

# Sanitizers have their own lane (make test): here they would only be slow.
build_libsplit() {
    local source targets=() lib=$REPO_DIR/libsplit
    for source in $(grep -L PM_RECORD "$lib"/test/unit/test_*.c) "$lib"/test/recover/test_*.c; do
        source=${source#"$lib/test/"}
        targets+=("$VM_BUILD/test/plain/${source%.c}")
    done
    for source in "$lib"/test/posix/*.c; do
        targets+=("$VM_BUILD/test/posix/$(basename "$source" .c)")
    done
    make_libsplit "their tests" "${targets[@]}"
    build_model
}

# The same, for libsplit-quick and memory.
build_libsplit_few() {
    make_libsplit "a few tests" "$VM_BUILD/test/plain/unit/test_relink" "$VM_BUILD/test/plain/agent/test_lease"
    build_model
}

# build_model: libsplit's model test; it finds the library where that has been built, inside as outside.
build_model() {
    local lib=$REPO_DIR/libsplit
    build_program model -I"$lib/include" "$lib"/test/model/*.c -L"$VM_BUILD" -lsplitfs -Wl,-rpath,"$VM_BUILD"
}

# build_go NAME WORD...: `go WORD...` makes it.
build_go() {
    mkdir -p "$VM_BUILD/vm-bin"
    (cd "$REPO_DIR" && CGO_ENABLED=0 "$("$HACK_DIR/install-deps" --print-go)" "$2" -o "$VM_BUILD/vm-bin/$1" "${@:3}")
}

# The driver's tests of what has changed since a device was copied.
build_changes() {
    build_go changes.test test -c ./csi-driver/internal/changes || die "cannot build the tests of snapshots (see above)"
}

# The driver, and its test that makes what pods are shown.
build_driver() {
    make_libsplit "the driver"
    build_go splitfs-csi build ./csi-driver/cmd/splitfs-csi && build_go node.test test -c ./csi-driver/internal/node ||
        die "cannot build the driver (see above)"
}

build_relink_tests() {
    make -s -C "$REPO_DIR/kernel-patch/test" BUILD="$VM_BUILD/kernel-patch" >&2 || die "cannot build the tests of relink (see above)"
}

# build_debug_module LINE: BUILD/modules/RELEASE/debug/ext4_splitfs.ko, whose relinks can be made to fail half way.
build_debug_module() {
    get_kernel "$1"
    progress "building ext4_splitfs for $kernel_release, for the tests of relink"
    "$REPO_DIR/kernel-patch/build" --debug --release "$kernel_release" --line "$1" "${kernel_build[@]}" \
        --out "$VM_BUILD/modules/$kernel_release/debug" >&2 ||
        die "cannot build the module for $kernel_release (see above)"
}

# build_module LINE: BUILD/modules/RELEASE/ext4_splitfs.ko, for exactly the kernel that get_kernel chooses.
build_module() {
    get_kernel "$1"
    progress "building ext4_splitfs for $kernel_release"
    "$REPO_DIR/kernel-patch/build" --release "$kernel_release" --line "$1" "${kernel_build[@]}" \
        --out "$VM_BUILD/modules/$kernel_release" >&2 ||
        die "cannot build the module for $kernel_release (see above)"
}

# build_type TYPE LINE KNOWN...: what a file system of that type needs; a type that is not among KNOWN is a wrong argument.
build_type() {
    local type=$1 line=$2 known="${*:3}"
    case " $known " in
    *" $type "*) ;;
    *) usage_error "--type '$type': known are ${known// /, }" ;;
    esac
    [ "$type" != ext4_splitfs ] || build_module "$line"
}
