# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2034,SC2153,SC2054  # the parts of hack/vm share variables
# Power cuts: the machine is killed while it works, booted again on the same NVDIMM, and what is there is checked.

powercut_usage() {
    cat <<EOF
Usage: hack/vm power-cut [OPTION]...

Kills a machine at random moments while workers write under the library in every mode, boots it again, recovers, and checks
that all they were told is durable is there, that nothing is torn that must not be, and that the file system is clean.
Some cuts hit recovery itself. The first round is the control: a worker without the library has to lose data.

  --kernel LINE  [$VM_KERNEL_DEFAULT]
  --type TYPE    as pmem-mount has them: ext4, ext4_splitfs, xfs, xfs-exchange [ext4_splitfs]
  --cuts N       [$VM_CUTS]
  --seed N       [$VM_SEED]; 0 takes one at random and prints it
  --name NAME    directory of the run, below BUILD/vm [power-cut]
  --modes LIST   only these modes: posix, sync, strict, and on ext4_splitfs exchange, which is a worker without the library that lets
                 two files exchange blocks [all of them]
EOF
}

# Random numbers that only the seed decides; $RANDOM would repeat in a subshell. Sets drawn to 0 .. $1 - 1.
draw() {
    cut_random=$(((cut_random * 6364136223846793005 + 1442695040888963407) & 0x7fffffffffffffff))
    drawn=$(((cut_random >> 32) % $1))
}

# counter N: of the shared memory.
counter() { od -An -t u8 -j $((64 * $1)) -N 8 "$vm_run/shared" | tr -d ' '; }

# wait_for SECONDS COMMAND...: while the machine lives.
wait_for() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        vm_alive || return 1
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.02
    done
}

phase_reached() { [ "$(counter 15)" -ge "$1" ]; }

# Each worker has got somewhere.
all_began() {
    local worker
    for worker in $cut_load; do [ "$(counter "${worker%%:*}")" -ge 20 ] || return 1; done
}

# cut_failed WHY: keeps the NVDIMM for who wants to look.
cut_failed() {
    vm_kill
    cat "$vm_run/output.log" >&2
    vm_trouble "$1"
    warn "the NVDIMM is kept: ${vm_pmem[0]} (seed $cut_seed)"
    exit 1
}

vm_power_cut_command() {
    local type=ext4_splitfs cuts=$VM_CUTS name=power-cut modes='' cut_check='' cut_load='' round mode w cut=0 recovery_cuts=0 controls=1
    local acked=0 sets
    vm_kernel=$VM_KERNEL_DEFAULT vm_memory=$VM_MEMORY vm_cpus=$VM_CPUS vm_append=() cut_seed=$VM_SEED
    while [ $# -gt 0 ]; do
        case $1 in
        -h | --help)
            powercut_usage
            return
            ;;
        --kernel | --type | --cuts | --seed | --name | --modes)
            [ $# -ge 2 ] || usage_error "$1 wants a value"
            case $1 in
            --kernel) vm_kernel=$2 ;;
            --type) type=$2 ;;
            --cuts) cuts=$2 ;;
            --seed) cut_seed=$2 ;;
            --name) name=$2 ;;
            --modes) modes=$2 ;;
            esac
            shift
            ;;
        *) usage_error "power-cut: unknown argument '$1'" ;;
        esac
        shift
    done
    known_line "$vm_kernel"
    case $cuts$cut_seed in *[!0-9]*) usage_error "power-cut: --cuts and --seed want numbers" ;; esac
    [ "$cut_seed" != 0 ] || cut_seed=$((RANDOM * 32768 + RANDOM + 1))
    cut_random=$cut_seed
    [ -n "$modes" ] || modes="posix sync strict$([ "$type" != ext4_splitfs ] || echo ' exchange')"
    for mode in $modes; do
        case $mode,$type in posix,* | sync,* | strict,* | exchange,ext4_splitfs) ;; *) usage_error "power-cut: unknown mode '$mode'" ;; esac
    done

    default_shares
    claim_run "$name" 1
    vm_pmem=("$vm_run/pmem0.img")
    rm -f "${vm_pmem[0]}" "$vm_run/shared" "$vm_run/control"
    pmem_image "${vm_pmem[0]}" 512M
    truncate -s 1M "$vm_run/shared"
    vm_extra=(-object "memory-backend-file,id=shared,share=on,mem-path=$vm_run/shared,size=1M" -device ivshmem-plain,memdev=shared)
    progress "$cuts power cuts on $type, kernel $vm_kernel, seed $cut_seed"

    # Modes alone, because one mode's journal commits would hide what another forgets; then together.
    sets=("0:none")
    w=1
    for mode in $modes; do
        sets+=("$w:$mode")
        w=$((w + 1))
    done
    sets+=("${sets[*]:1}")
    for ((round = 0; round <= cuts; round++)); do
        if [ "$round" = "$cuts" ]; then
            cut_load=
        elif [ "$round" = 0 ]; then
            cut_load="0:none:0"
        else
            cut_load=
            for w in ${sets[1 + (round - 1) % (${#sets[@]} - 1)]}; do cut_load+="${cut_load:+ }$w:$round"; done
        fi
        one_boot
        # By chance all that it wrote may have been committed: then another one.
        if [ "$(cat "$vm_run/control" 2>/dev/null)" = held ] && [ -n "$cut_load" ] && [ "$controls" -lt 5 ]; then
            rm "$vm_run/control"
            cut_load="0:none:$((cuts + controls))"
            controls=$((controls + 1))
            one_boot
        fi
    done
    [ "$(cat "$vm_run/control")" = lost ] || cut_failed "$controls workers without the library lost nothing: the cuts prove nothing"
    rm -f "${vm_pmem[0]}" "$vm_run/shared"
    progress "$cut cuts in the middle of work, $recovery_cuts in the middle of recovery: $acked acknowledged operations checked (seed $cut_seed)"
}

# One round: a boot that checks the last cut and is cut itself; before it perhaps boots that are cut while they recover.
one_boot() {
    local delay during=0
    while true; do
        write_job powercut-boot "$type" "$cut_seed" "$cut_check" "$cut_load"
        printf '\0\0\0\0\0\0\0\0' | dd of="$vm_run/shared" bs=1 seek=$((64 * 15)) conv=notrunc status=none
        vm_start
        if [ -n "$cut_check" ] && [ "$during" = 0 ]; then
            draw 4
            if [ "$drawn" = 0 ]; then
                during=1
                wait_for $((VM_BOOT_TIMEOUT + 60)) phase_reached 1 || cut_failed "the machine did not come to recover"
                draw 400
                sleep "0.$(printf '%03d' "$drawn")"
                vm_kill
                recovery_cuts=$((recovery_cuts + 1))
                progress "cut during recovery, after $drawn ms"
                continue
            fi
        fi
        break
    done
    if [ -z "$cut_load" ]; then
        vm_wait 120 || cut_failed "the last check did not end"
        cat "$vm_run/output.log"
        [ "$(cat "$vm_run/status")" = 0 ] || cut_failed "after the last cut: the check failed"
        return
    fi
    wait_for $((VM_BOOT_TIMEOUT + 60)) phase_reached 3 || cut_failed "round $round: the check failed, or the machine hung"
    wait_for 120 all_began || cut_failed "round $round: the workers do not get on"
    draw 4000
    delay=$(printf '%d.%03d' $((drawn / 1000)) $((drawn % 1000)))
    sleep "$delay"
    vm_alive || cut_failed "round $round: the machine ended by itself"
    vm_kill
    # A worker that failed has ended the job.
    [ ! -e "$vm_run/status" ] || cut_failed "round $round: a worker failed"
    cat "$vm_run/output.log"
    cut=$((cut + 1))
    local text='' one
    for one in $cut_load; do
        text+="${text:+, }$(counter "${one%%:*}") of $(cut -d: -f2 <<<"$one")"
        acked=$((acked + $(counter "${one%%:*}")))
    done
    progress "cut $cut after $delay s: acknowledged operations: $text"
    cut_check=$cut_load
}
