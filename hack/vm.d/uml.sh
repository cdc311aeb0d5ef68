# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2034,SC2054  # the parts of hack/vm share variables
# A machine that is a process of this one (User Mode Linux): the same root file system and job as in QEMU, started and watched in the same
# way (boot.sh). What QEMU shares by 9p is hostfs here, and what is an NVDIMM there is a disk here, under the same name; there is no DAX.
# Its processes are the host's, which is why without KVM it is many times as fast as an emulated machine.

# uml_power_on: what vm_power_on does, for such a machine.
uml_power_on() {
    local n=0 image shares share dir words work
    need_root "a kernel that is a process gets namespaces of its own, so that nothing of it is left when it is stopped"
    need_commands "run hack/install-deps vm" setpriv taskset unshare
    if [ $((${#vm_cxl[@]} + ${#vm_volatile[@]} + ${#vm_virtio[@]} + vm_labels)) -gt 0 ] || [ -n "$vm_uefi" ]; then
        die "a kernel that is a process has disks and no other memory: SPLITFS_VM_KERNEL=uml cannot run this"
    fi
    get_kernel "$vm_kernel"
    get_root
    get_initrd
    vm_accel=uml
    work=$(mktemp -d)
    TEMPORARY+=("$work")
    words=("mem=$vm_memory" "umid=splitfs" "uml_dir=$work" "initrd=$initrd_image" "ubd0r=$root_image" con=null con0=null,fd:1 ssl=null
        panic=-1 loglevel=5 quiet vm.kind=uml vm.root=/dev/ubda "run=$vm_run" "start=$VM_PARTS/guest/start" "vm.line=$vm_kernel" "${vm_append[@]}")
    for image in "${vm_pmem[@]}"; do
        n=$((n + 1))
        words+=("ubd$n=$image")
    done
    n=0
    shares=$(all_shares) || exit
    while read -r share; do
        dir=${share#*:}
        words+=("hostfs.s$n=${share%%,*}:${dir#*=}:${dir%%=*}")
        n=$((n + 1))
    done <<<"$shares"
    clear_run
    uml_processor
    setpriv --pdeathsig KILL unshare --pid --fork --kill-child=KILL --mount-proc \
        taskset -c "$uml_cpu" "$kernel_image/boot/vmlinuz-$kernel_release" "${words[@]}" >"$vm_run/console.log" 2>&1 </dev/null &
    vm_pid=$!
    vm_started=$SECONDS
}

# uml_processor: sets uml_cpu to the processor that the machine is put on. The kernel and its processes take turns at every system call,
# which takes a fifth of the time on one processor. Each machine that runs holds the lock of its own, as long as there are some.
uml_processor() {
    local cpu cpus=()
    while read -r cpu; do cpus+=("$cpu"); done < <(taskset -cp $$ | sed 's/.*: //' | tr , '\n' | awk -F- '{ for (i = $1; i <= $NF; i++) print i }')
    for cpu in "${cpus[@]}"; do
        exec {uml_lock}>"$VM_CACHE/uml/.processor$cpu.lock"
        uml_cpu=$cpu
        flock -n "$uml_lock" && return
        exec {uml_lock}>&-
    done
    uml_cpu=${cpus[RANDOM % ${#cpus[@]}]}
}
