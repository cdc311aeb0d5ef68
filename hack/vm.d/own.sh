# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2034  # the parts of hack/vm share variables
# Kernels of our own, built from the distribution's source of a line, that watch themselves. SPLITFS_VM_KERNEL makes every command of
# hack/vm take them instead of the distribution's: debug ones for a machine, with KASAN and lockdep (debug.config), uml ones that are a
# process of this machine, with lockdep and without DAX (uml.config, uml.sh).

# What compiling one needs besides (hack/install-deps vm).
OWN_COMMANDS=(bc bison flex gcc make)

# own_kernel KIND: sets how it is made: own_make, words for make, own_base, the configuration that it begins with, own_targets, own_image,
# the file that it is, own_words, what it is called, and own_time.
own_kernel() {
    case $1 in
    debug)
        own_make=() own_base=x86_64_defconfig own_targets=(bzImage modules) own_image=arch/x86/boot/bzImage
        own_words="with KASAN, lockdep and DEBUG_VM" own_time="half an hour of a processor"
        ;;
    uml)
        own_make=(ARCH=um) own_base=allnoconfig own_targets=(linux modules) own_image=linux
        own_words="as a process, with lockdep" own_time="six minutes of a processor"
        ;;
    esac
}

# get_own_kernel LINE KIND: sets what get_kernel sets, and kernel_build, the words for kernel-patch/build. Built once for a version of the
# source and a configuration; an interrupted build goes on where it was.
get_own_kernel() {
    local line=$1 kind=$2 key dir assignments out cores own_make own_base own_targets own_image own_words own_time
    need_commands "run hack/install-deps vm" "${OWN_COMMANDS[@]}" depmod flock
    own_kernel "$kind"
    mkdir -p "$VM_CACHE/$kind"
    exec {own_lock}>"$VM_CACHE/$kind/.$line.lock"
    flock "$own_lock"
    if [ ! -s "$VM_CACHE/$kind/$line" ]; then
        "$REPO_DIR/kernel-patch/fetch" --line "$line" --tree >"$VM_CACHE/$kind/$line.new" || die "the source of kernel $line cannot be fetched (see above)"
        mv "$VM_CACHE/$kind/$line.new" "$VM_CACHE/$kind/$line"
    fi
    # Shell assignments, written by kernel-patch/fetch.
    # shellcheck source=/dev/null
    . "$VM_CACHE/$kind/$line"
    [ -f "$kernel_tree/Makefile" ] || {
        rm -f "$VM_CACHE/$kind/$line"
        die "kernel $line: $kernel_tree is gone; try again to fetch it anew"
    }
    key=$({ echo "$kernel_tree"; gcc -dumpfullversion; cat "$VM_PARTS/$kind.config"; } | sha256sum | cut -c1-16)
    dir=$VM_CACHE/$kind/$line-$key out=$VM_CACHE/$kind/$line-$key/build
    if [ ! -f "$dir/done" ]; then
        cores=$(nproc)
        mkdir -p "$out"
        progress "kernel $line $own_words: building it (once, $own_time; $dir/make.log)"
        make -s -C "$kernel_tree" O="$out" "${own_make[@]}" "$own_base" >"$dir/make.log" 2>&1 || die "no configuration for kernel $line (see $dir/make.log)"
        cat "$VM_PARTS/$kind.config" >>"$out/.config"
        make -s -C "$kernel_tree" O="$out" "${own_make[@]}" olddefconfig >>"$dir/make.log" 2>&1 ||
            die "no configuration for kernel $line (see $dir/make.log)"
        check_own_config "$out/.config" "$VM_PARTS/$kind.config"
        nice -n 19 make -C "$kernel_tree" O="$out" "${own_make[@]}" -j"$cores" "${own_targets[@]}" >>"$dir/make.log" 2>&1 || {
            grep -E 'error|Error' "$dir/make.log" | head -n 10 >&2
            die "kernel $line cannot be built (see $dir/make.log)"
        }
        kernel_release=$(cat "$out/include/config/kernel.release")
        rm -rf "$dir/image" "$dir/modules"
        mkdir -p "$dir/image/boot" "$dir/modules"
        cp "$out/$own_image" "$dir/image/boot/vmlinuz-$kernel_release"
        cp "$out/.config" "$dir/image/boot/config-$kernel_release"
        make -s -C "$kernel_tree" O="$out" "${own_make[@]}" INSTALL_MOD_PATH="$dir/modules" modules_install >>"$dir/make.log" 2>&1 ||
            die "the modules of kernel $line cannot be installed (see $dir/make.log)"
        rm -f "$dir/modules/lib/modules/$kernel_release"/{build,source}
        echo "$kernel_release" >"$dir/done"
    fi
    exec {own_lock}>&-
    kernel_release=$(cat "$dir/done")
    kernel_image=$dir/image kernel_modules=$dir/modules
    kernel_build=(--headers "$out" --source "$kernel_tree")
    # kernel-patch/build compiles by the kernel's own Makefile, which takes it from there.
    [ "$kind" != uml ] || export ARCH=um
}

# check_own_config FILE WANTED: what does not come true without a word would not be there when it is needed.
check_own_config() {
    local line lost=()
    while read -r line; do
        case $line in
        CONFIG_*) grep -qxF "$line" "$1" || lost+=("$line") ;;
        esac
    done <"$2"
    [ ${#lost[@]} = 0 ] || die "this kernel has no ${lost[*]}: hack/vm.d/${2##*/} has to be adapted"
}

# What KASAN and lockdep say on the console.
WATCHERS='KASAN:|WARNING: .*(lock|RCU usage)|BUG: (Invalid wait context|sleeping function)|DEBUG_LOCKS_WARN_ON|ODEBUG'
WATCHERS+='|INFO: trying to register non-static|lockdep is turned off'

# own_faults: without what a kernel finds in its own arch/um.
own_faults() {
    if [ "$SPLITFS_VM_KERNEL" = uml ]; then "$REPO_DIR/kernel-patch/test/without_uml"; else cat; fi
}

# watchers_said: of the machine that has ended, by itself or not, when its kernel was one that watches itself: 1 where
# KASAN or lockdep had something to say, or where lockdep was off when the job was done. One word, or a table that is too
# small, turns it off; then it finds nothing any more.
watchers_said() {
    local said off=0
    [ "${SPLITFS_VM_KERNEL:-stock}" != stock ] || return 0
    # grep's word for none is no failure
    said=$(cat "$vm_run"/{console,dmesg}.log 2>/dev/null | tr -d '\r' | own_faults | grep -aE "$WATCHERS" | head -n 20) || true
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
    local line=6.12 kind=''
    while [ $# -gt 0 ]; do
        case $1 in
        -h | --help)
            echo "Usage: hack/vm kernel --debug|--uml [LINE]   build a kernel from the distribution's source [6.12]"
            echo "  --debug  one with KASAN, lockdep and DEBUG_VM"
            echo "  --uml    one that is a process of this machine, with lockdep and without DAX"
            echo "SPLITFS_VM_KERNEL=debug or uml makes the other commands use it: SPLITFS_VM_KERNEL=debug hack/vm test relink@6.12 relink-stress@6.12"
            return
            ;;
        --debug | --uml) kind=${1#--} ;;
        -*) usage_error "kernel: unknown option '$1'" ;;
        *) line=$1 ;;
        esac
        shift
    done
    [ -n "$kind" ] || usage_error "kernel: --debug or --uml is missing"
    known_line "$line"
    SPLITFS_VM_KERNEL=$kind
    get_root
    get_kernel "$line"
    get_initrd
    progress "kernel $line: $kernel_release is ready"
}
