# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2034  # the parts of hack/vm share variables
# Kernels of our own, built from the distribution's source of a line: with KASAN, lockdep and CONFIG_DEBUG_VM (debug.config). With
# SPLITFS_VM_KERNEL=debug every command of hack/vm takes them instead of the distribution's.

# What compiling one needs besides (hack/install-deps vm).
DEBUG_COMMANDS=(bc bison flex gcc make)

# get_debug_kernel LINE: sets what get_kernel sets, and kernel_build, the words for kernel-patch/build. Built once for a version of the
# source and a configuration; an interrupted build goes on where it was.
get_debug_kernel() {
    local line=$1 key dir assignments out cores
    need_commands "run hack/install-deps vm" "${DEBUG_COMMANDS[@]}" depmod flock
    mkdir -p "$VM_CACHE/debug"
    exec {debug_lock}>"$VM_CACHE/debug/.$line.lock"
    flock "$debug_lock"
    if [ ! -s "$VM_CACHE/debug/$line" ]; then
        "$REPO_DIR/kernel-patch/fetch" --line "$line" --tree >"$VM_CACHE/debug/$line.new" || die "the source of kernel $line cannot be fetched (see above)"
        mv "$VM_CACHE/debug/$line.new" "$VM_CACHE/debug/$line"
    fi
    # Shell assignments, written by kernel-patch/fetch.
    # shellcheck source=/dev/null
    . "$VM_CACHE/debug/$line"
    [ -f "$kernel_tree/Makefile" ] || {
        rm -f "$VM_CACHE/debug/$line"
        die "kernel $line: $kernel_tree is gone; try again to fetch it anew"
    }
    key=$({ echo "$kernel_tree"; gcc -dumpfullversion; cat "$VM_PARTS/debug.config"; } | sha256sum | cut -c1-16)
    dir=$VM_CACHE/debug/$line-$key out=$VM_CACHE/debug/$line-$key/build
    if [ ! -f "$dir/done" ]; then
        cores=$(nproc)
        mkdir -p "$out"
        progress "kernel $line with KASAN, lockdep and DEBUG_VM: building it (once, half an hour of a processor; $dir/make.log)"
        make -s -C "$kernel_tree" O="$out" x86_64_defconfig >"$dir/make.log" 2>&1 || die "no configuration for kernel $line (see $dir/make.log)"
        cat "$VM_PARTS/debug.config" >>"$out/.config"
        make -s -C "$kernel_tree" O="$out" olddefconfig >>"$dir/make.log" 2>&1 || die "no configuration for kernel $line (see $dir/make.log)"
        check_debug_config "$out/.config"
        nice -n 19 make -C "$kernel_tree" O="$out" -j"$cores" bzImage modules >>"$dir/make.log" 2>&1 || {
            grep -E 'error|Error' "$dir/make.log" | head -n 10 >&2
            die "kernel $line cannot be built (see $dir/make.log)"
        }
        kernel_release=$(cat "$out/include/config/kernel.release")
        rm -rf "$dir/image" "$dir/modules"
        mkdir -p "$dir/image/boot" "$dir/modules"
        cp "$out/arch/x86/boot/bzImage" "$dir/image/boot/vmlinuz-$kernel_release"
        cp "$out/.config" "$dir/image/boot/config-$kernel_release"
        make -s -C "$kernel_tree" O="$out" INSTALL_MOD_PATH="$dir/modules" modules_install >>"$dir/make.log" 2>&1 ||
            die "the modules of kernel $line cannot be installed (see $dir/make.log)"
        rm -f "$dir/modules/lib/modules/$kernel_release"/{build,source}
        echo "$kernel_release" >"$dir/done"
    fi
    exec {debug_lock}>&-
    kernel_release=$(cat "$dir/done")
    kernel_image=$dir/image kernel_modules=$dir/modules
    kernel_build=(--headers "$out" --source "$kernel_tree")
}

# check_debug_config FILE: what does not come true without a word would not be there when it is needed.
check_debug_config() {
    local line lost=()
    while read -r line; do
        case $line in
        CONFIG_*) grep -qxF "$line" "$1" || lost+=("$line") ;;
        esac
    done <"$VM_PARTS/debug.config"
    [ ${#lost[@]} = 0 ] || die "this kernel has no ${lost[*]}: hack/vm.d/debug.config has to be adapted"
}

# What KASAN and lockdep say on the console.
WATCHERS='KASAN:|WARNING: .*(lock|RCU usage)|BUG: (Invalid wait context|sleeping function)|DEBUG_LOCKS_WARN_ON|ODEBUG'
WATCHERS+='|INFO: trying to register non-static|lockdep is turned off'

# watchers_said: of the machine that has ended, by itself or not, when its kernel was one that watches itself: 1 where
# KASAN or lockdep had something to say, or where lockdep was off when the job was done. One word, or a table that is too
# small, turns it off; then it finds nothing any more.
watchers_said() {
    local said off=0
    [ "${SPLITFS_VM_KERNEL:-stock}" = debug ] || return 0
    # grep's word for none is no failure
    said=$(cat "$vm_run"/{console,dmesg}.log 2>/dev/null | tr -d '\r' | grep -aE "$WATCHERS" | head -n 20) || true
    if [ -e "$vm_run/status" ]; then
        grep -qsE '^ *debug_locks: +1$' "$vm_run/lockdep_stats" || off=1
    fi
    [ -n "$said" ] || [ "$off" = 1 ] || return 0
    [ -z "$said" ] || warn "the kernel that watches itself has complained:"$'\n'"$said"
    [ "$off" = 0 ] || warn "lockdep was off when the job was done: nothing was watched from some moment on"
    warn "all that it said is in $vm_run"
    return 1
}

vm_kernel_command() {
    local line=6.12
    while [ $# -gt 0 ]; do
        case $1 in
        -h | --help)
            echo "Usage: hack/vm kernel --debug [LINE]   build a kernel with KASAN, lockdep and DEBUG_VM from the distribution's source [6.12]"
            echo "SPLITFS_VM_KERNEL=debug makes the other commands use it: SPLITFS_VM_KERNEL=debug hack/vm test relink@6.12 relink-stress@6.12"
            return
            ;;
        --debug) ;;
        -*) usage_error "kernel: unknown option '$1'" ;;
        *) line=$1 ;;
        esac
        shift
    done
    known_line "$line"
    SPLITFS_VM_KERNEL=debug
    get_root
    get_kernel "$line"
    get_initrd
    progress "kernel $line: $kernel_release is ready"
}
