# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2034,SC2054  # the parts of hack/vm share variables
# One virtual machine from power on to power off.

# choose_accel: KVM where it works, else emulation. A /dev/kvm on a processor that shows no virtualization extension belongs to
# a hypervisor that runs only kernels made for it: a distribution's kernel hangs there.
choose_accel() {
    case ${SPLITFS_VM_ACCEL:-auto} in
    auto)
        if [ -r /dev/kvm ] && [ -w /dev/kvm ] && grep -qwE 'vmx|svm' /proc/cpuinfo; then
            echo kvm
        else
            echo tcg
        fi
        ;;
    kvm | tcg) echo "$SPLITFS_VM_ACCEL" ;;
    *) die "SPLITFS_VM_ACCEL='$SPLITFS_VM_ACCEL': known are auto, kvm and tcg" ;;
    esac
}

# What a machine is made of; set by the caller, all of them.
#   vm_kernel    kernel line            vm_run      directory of this run
#   vm_pmem      images of NVDIMMs      vm_memory, vm_cpus
#   vm_shares    OPTIONS:DIR            vm_append   more words for the kernel
#   vm_extra     more words for QEMU
#   vm_labels    size of each NVDIMM's label area, which is taken from its end; 0: none
#   vm_persistence  what the machine says of its NVDIMMs: mem-ctrl (ADR), cpu (eADR), none (it says nothing)
#   vm_uefi      the variables of UEFI firmware; empty: the machine has a BIOS
declare -a vm_pmem=() vm_shares=() vm_append=() vm_extra=() vm_env=()
vm_uefi='' vm_labels=0 vm_persistence=mem-ctrl

# 9p options: what nobody changes during a run is cached; what both sides write is not.
SHARE_READ=ro,cache=loose
SHARE_WRITE=rw,cache=none

# vm_start: starts the machine in the background. Sets vm_pid.
vm_start() {
    vm_again=0
    case ${SPLITFS_VM_KERNEL:-stock} in
    uml) uml_power_on ;;
    *) vm_power_on ;;
    esac
}

# all_shares: vm_shares, and what every machine has: the kernel's modules and the directory of the run.
all_shares() {
    local share
    for share in "$SHARE_READ:$kernel_modules/lib/modules=/usr/lib/modules" "${vm_shares[@]}" "$SHARE_WRITE:$vm_run"; do
        case ${share#*:} in
        *[[:space:],=]*=* | *[[:space:],]*) die "a shared directory's name must not hold blanks or commas: '${share#*:}'" ;;
        esac
        printf '%s\n' "$share"
    done
}

# clear_run: nothing of an earlier run is left in its directory.
clear_run() {
    rm -f "$vm_run"/{console.log,output.log,started,status,status.new,dmesg.log,lockdep_stats,qemu.log}
    : >"$vm_run/output.log"
}

vm_power_on() {
    local n=0 shares share dir options words command memory machine=q35,nvdimm=on cpu=max
    need_commands "run hack/install-deps vm" setpriv
    get_qemu
    get_kernel "$vm_kernel"
    get_root
    get_initrd
    vm_accel=$(choose_accel) || exit
    [ "$vm_persistence" = none ] || machine+=,nvdimm-persistence=$vm_persistence
    if [ $((${#vm_cxl[@]} + ${#vm_volatile[@]})) -gt 0 ]; then
        machine+=,cxl=on
        # A kernel that knows it is a guest refuses to make regions of CXL memory: only on hardware it can empty all caches.
        cpu+=,hypervisor=off
        # Nor does it take a device whose events have no interrupts, as QEMU 7.2's, unless it has to do without any for all.
        vm_append+=(pci=nomsi vm.load=cxl_acpi vm.load=cxl_pci vm.load=cxl_port vm.load=cxl_mem vm.load=cxl_pmem)
    fi
    [ ${#vm_virtio[@]} = 0 ] || vm_append+=(vm.load=virtio_pmem)
    # While the kernel looks at its first processor it has forgotten for a moment that page tables have five levels. KASAN takes the memory
    # that an interrupt uses at that moment for none, and says nothing any more afterwards.
    [ "${SPLITFS_VM_KERNEL:-stock}" != debug ] || vm_append+=(no5lvl)
    # An emulated processor gets no time for seconds when the machine is busy: no reason to doubt the timer or to cry lockup.
    words=(console=ttyS0 panic=-1 loglevel=5 quiet no_timer_check nosoftlockup rcupdate.rcu_cpu_stall_suppress=1 "run=$vm_run" "start=$VM_PARTS/guest/start" "vm.line=$vm_kernel" "${vm_append[@]}")
    command=(-name "splitfs-vm $vm_run" -accel "$vm_accel" -cpu "$cpu" -smp "$vm_cpus" -m "$vm_memory,slots=8,maxmem=64G"
        -machine "$machine" -nodefaults -nographic -no-reboot -net none
        -chardev "file,id=console,path=$vm_run/console.log" -serial chardev:console
        -device virtio-serial -chardev "file,id=job,path=$vm_run/output.log" -device virtserialport,chardev=job,name=job
        -drive "file=$root_image,format=raw,if=none,id=root,readonly=on" -device virtio-blk-pci,drive=root
        -kernel "$kernel_image/boot/vmlinuz-$kernel_release" -initrd "$initrd_image")
    [ -z "$vm_uefi" ] || command+=(-drive "if=pflash,format=raw,unit=0,readonly=on,file=$VM_UEFI_CODE"
        -drive "if=pflash,format=raw,unit=1,file=$vm_uefi")
    n=0
    shares=$(all_shares) || exit
    while read -r share; do
        options=${share%%:*}
        dir=${share#*:}
        command+=(-virtfs "local,path=${dir%%=*},mount_tag=s$n,security_model=none,multidevs=remap,id=s$n$(case $options in ro,*) echo ,readonly=on ;; esac)")
        words+=("share.s$n=$options:${dir#*=}")
        n=$((n + 1))
    done <<<"$shares"
    # At last: what is plugged in nowhere in particular would be put on a CXL host bridge, if there was one.
    mapfile -t memory < <(memory_words)
    command+=("${memory[@]}")
    clear_run
    # The kernel's signal, not ours, ends the machine when this script is killed.
    setpriv --pdeathsig KILL "${qemu[@]}" "${command[@]}" "${vm_extra[@]}" -append "${words[*]}" >"$vm_run/qemu.log" 2>&1 </dev/null &
    vm_pid=$!
    vm_started=$SECONDS
}

# vm_reap: waits for the machine's process; its status says nothing that its files do not. Sets vm_complained where its
# kernel has.
vm_reap() {
    wait "$vm_pid" 2>/dev/null || true
    watchers_said || vm_complained=1
}

# vm_kill: the machine loses its power now.
vm_kill() {
    [ -n "${vm_pid:-}" ] || return 0
    kill -KILL "$vm_pid" 2>/dev/null || true # it may have ended by itself
    vm_reap
    vm_pid=
}

# vm_alive: still running? The emulator lets a processor see half of an instruction that another one is changing, as the kernel does
# while it starts, or gives it no time to find its clocks: a machine that has died of that, before it did anything, is started again.
vm_alive() {
    [ -n "${vm_pid:-}" ] || return 1
    ! kill -0 "$vm_pid" 2>/dev/null || return 0
    [ "$vm_accel" = tcg ] && [ ! -e "$vm_run/started" ] && [ "$vm_again" -lt 3 ] && grep -qE 'Oops: int3|splitfs-vm: no clock' "$vm_run/console.log" || return 1
    vm_again=$((vm_again + 1))
    progress "the emulator has tripped over the kernel's start: once more"
    vm_reap
    vm_power_on
}

# vm_wait SECONDS: waits for the machine's end; 0 when it ended with its job done, else says why not on standard error.
vm_wait() {
    local limit=$1 begun=
    while vm_alive; do
        if [ -z "$begun" ] && [ -e "$vm_run/started" ]; then
            begun=$SECONDS
            progress "kernel $vm_kernel is up after $((begun - vm_started)) s"
        fi
        if [ -z "$begun" ] && [ $((SECONDS - vm_started)) -ge "$VM_BOOT_TIMEOUT" ]; then
            vm_kill
            vm_trouble "the machine was not up within $VM_BOOT_TIMEOUT s (SPLITFS_VM_BOOT_TIMEOUT changes that)"
            return 1
        fi
        if [ -n "$begun" ] && [ $((SECONDS - begun)) -ge "$limit" ]; then
            vm_kill
            vm_trouble "the job was not done within $limit s (--timeout changes that)"
            return 1
        fi
        sleep 0.1
    done
    vm_reap
    vm_pid=
    [ -e "$vm_run/status" ] && return 0
    vm_trouble "the machine ended before its job did"
    return 1
}

# vm_trouble WHY: shows what there is to see.
vm_trouble() {
    if [ -s "$vm_run/qemu.log" ]; then
        printf '%s\n' "--- qemu.log" >&2
        tail -n 10 "$vm_run/qemu.log" >&2
    fi
    printf '%s\n' "--- last lines of the console" >&2
    tail -n 40 "$vm_run/console.log" 2>/dev/null | tr -d '\r' >&2 || echo "(there is no console output)" >&2
    printf '%s: %s; all of it is in %s\n' "${0##*/}" "$1" "$vm_run" >&2
}
