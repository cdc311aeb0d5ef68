# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2034,SC2153  # the parts of hack/vm share variables
# hack/vm run: one boot, one job.

# A timed-out or broken machine is told apart from a job that failed, like timeout(1) does it.
STATUS_NO_RESULT=124

# A label area; it is at the end of an image, on top of the NVDIMM's size. Where one NVDIMM ends the next begins, and a region can
# be divided only when it begins at a multiple of 16 MiB.
LABEL_AREA=$((2 << 20))

# claim_run NAME: makes and locks the directory of a run; NAME is varied when that one is in use and nobody asked for it.
# Sets vm_run.
claim_run() {
    local name=$1 asked=${2:-} n=1 candidate=$1
    case $name in */* | .* | '' | *[[:space:],:=]*) usage_error "a run's name is a plain word, not '$name'" ;; esac
    mkdir -p "$VM_BUILD/vm"
    while true; do
        exec {run_lock}>"$VM_BUILD/vm/.$candidate.lock"
        flock -n "$run_lock" && break
        exec {run_lock}>&-
        [ -z "$asked" ] || die "a run named '$name' is going on; choose another --name"
        n=$((n + 1))
        candidate=$name-$n
    done
    vm_run=$VM_BUILD/vm/$candidate
    mkdir -p "$vm_run"
}

# write_job COMMAND...: what guest/start runs.
write_job() {
    {
        # shellcheck disable=SC2016  # PATH is the machine's own
        printf 'export PATH=%q:$PATH VM_KERNEL=%q VM_RESULTS=%q BUILD=%q\n' "$VM_PARTS/guest/bin" "$vm_kernel" "$vm_run" "$VM_BUILD"
        [ ${#vm_env[@]} = 0 ] || printf 'export %q\n' "${vm_env[@]}"
        # The directory of the caller, where it can be seen from inside.
        printf 'cd %q 2>/dev/null || cd %q\n' "$PWD" "$vm_run"
        printf 'exec'
        printf ' %q' "$@"
        printf '\n'
    } >"$vm_run/job"
}

# default_shares: the sources and what was built from them, to be read only.
default_shares() {
    vm_shares=("$SHARE_READ:$REPO_DIR")
    case $VM_BUILD/ in
    "$REPO_DIR"/*) ;;
    *) vm_shares+=("$SHARE_READ:$VM_BUILD") ;;
    esac
}

# image_path PERSIST KIND N: where a memory's image is. Of an earlier run nothing is left there, unless it was to be kept.
image_path() {
    case $1,$2 in
    ,*)
        printf '%s\n' "$vm_run/$2$3.img"
        rm -f "$vm_run/$2$3.img" "$vm_run/$2$3.img.labels"
        ;;
    *,pmem) printf '%s\n' "$VM_CACHE/pmem/$1-$3.img" ;;
    *) printf '%s\n' "$VM_CACHE/pmem/$1-$2-$3.img" ;;
    esac
}

run_usage() {
    cat <<EOF
Usage: hack/vm run [OPTION]... -- COMMAND [ARGUMENT]...

Boots a virtual machine, runs COMMAND in it as root, and exits with its status; $STATUS_NO_RESULT when the machine
did not come up, hung or crashed (then its console's last lines are shown).

Inside, this repository and BUILD (where they are here, read-only), the directories of --share and the
directory of the run (VM_RESULTS, writable) are seen under the same names as outside. The root file
system is a Debian $VM_SUITE of its own, writable until the end of the run. Each NVDIMM is /dev/pmemN, a fsdax
namespace; "pmem-mount --help" (inside) makes file systems there.

  --kernel LINE    ${VM_KERNELS[*]// /, } [$VM_KERNEL_DEFAULT]
  --pmem SIZE      size of an NVDIMM; may be repeated for more of them [$VM_PMEM]
  --labels         NVDIMMs with a label area, initialized, without which they can have neither several namespaces nor
                   names for them; SIZE must be a multiple of 16M
  --no-namespaces  leave the NVDIMMs as they are; COMMAND makes what namespaces it wants
  --persistence WORD  what the machine says of its NVDIMMs: mem-ctrl (ADR), cpu (eADR), none (it says nothing) [mem-ctrl]
  --virtio-pmem SIZE  size of a virtio-pmem device; may be repeated
  --cxl SIZE       size of a CXL memory device, a multiple of 256M; may be repeated. Its region is COMMAND's to make.
  --cxl-volatile SIZE  the same of one that forgets. QEMU has it from 8.1 on: where this machine's is older, Debian's backports serve
                   With any of them the machine has only the NVDIMMs that --pmem names
  --persist NAME   keep the memories' content under this name for later runs
  --share DIR      show DIR inside, writable; may be repeated
  --share-read DIR[=PATH]  show DIR inside, read-only, as PATH [DIR]; may be repeated
  --env NAME=VALUE set a variable for COMMAND; may be repeated
  --timeout S      seconds for COMMAND, without the boot [$VM_TIMEOUT]
  --memory SIZE    [$VM_MEMORY]
  --cpus N         [$VM_CPUS]
  --append WORDS   more words for the kernel's command line
  --count          the clock counts instructions, a nanosecond each, where the machine is emulated (one processor)
  --selinux        the kernel has SELinux, and the root file system a policy, which COMMAND loads
  --uefi FILE      boot by UEFI firmware, whose variables are kept in FILE (made where there is none)
  --name NAME      name of the run's directory BUILD/vm/NAME [run]; there: output.log, console.log,
                   dmesg.log, status and whatever COMMAND leaves in VM_RESULTS
EOF
}

vm_run_command() {
    local sizes=() virtio=() cxl=() volatile=() persist='' name='' timeout=$VM_TIMEOUT dir size tail_pid status
    vm_kernel=$VM_KERNEL_DEFAULT vm_memory=$VM_MEMORY vm_cpus=$VM_CPUS vm_append=() vm_env=() vm_uefi='' vm_labels=0 vm_persistence=mem-ctrl
    vm_pmem=() vm_virtio=() vm_cxl=() vm_volatile=()
    default_shares
    while [ $# -gt 0 ]; do
        case $1 in
        -h | --help)
            run_usage
            return
            ;;
        --)
            shift
            break
            ;;
        --count)
            count_instructions || warn "the processor is not emulated: the clock is the clock"
            vm_cpus=1
            ;;
        --no-namespaces) vm_append+=(vm.namespaces=none) ;;
        --selinux)
            VM_PACKAGES+=("${VM_SELINUX_PACKAGES[@]}")
            vm_append+=(security=selinux selinux=1)
            ;;
        --labels)
            vm_labels=$LABEL_AREA
            vm_append+=(vm.labels=yes)
            ;;
        --kernel | --pmem | --persistence | --virtio-pmem | --cxl | --cxl-volatile | --persist | --share | --share-read | --env | --timeout | --memory | --cpus | --append | --uefi | --name)
            [ $# -ge 2 ] || usage_error "$1 wants a value"
            case $1 in
            --kernel) vm_kernel=$2 ;;
            --pmem) sizes+=("$2") ;;
            --persistence)
                case $2 in mem-ctrl | cpu | none) vm_persistence=$2 ;; *) usage_error "--persistence wants mem-ctrl, cpu or none, not '$2'" ;; esac
                ;;
            --virtio-pmem) virtio+=("$2") ;;
            --cxl) cxl+=("$2") ;;
            --cxl-volatile) volatile+=("$2") ;;
            --persist) persist=$2 ;;
            --share)
                dir=$(realpath -e "$2") || die "--share: there is no directory $2"
                vm_shares+=("$SHARE_WRITE:$dir")
                ;;
            --share-read)
                dir=$(realpath -e "${2%%=*}") || die "--share-read: there is no directory ${2%%=*}"
                case $2 in *=*) dir+="=${2#*=}" ;; esac
                vm_shares+=("$SHARE_READ:$dir")
                ;;
            --env)
                case $2 in [A-Za-z_]*=*) vm_env+=("$2") ;; *) usage_error "--env wants NAME=VALUE, not '$2'" ;; esac
                ;;
            --timeout) timeout=$2 ;;
            --memory) vm_memory=$2 ;;
            --cpus) vm_cpus=$2 ;;
            --append) vm_append+=("$2") ;;
            --uefi) vm_uefi=$(realpath -m "$2") ;;
            --name) name=$2 ;;
            esac
            shift
            ;;
        -*) usage_error "run: unknown option '$1'" ;;
        *) break ;;
        esac
        shift
    done
    [ $# -gt 0 ] || usage_error "run: no command; put it behind --"
    known_line "$vm_kernel"
    case $timeout in *[!0-9]* | '') usage_error "--timeout wants seconds, not '$timeout'" ;; esac
    [ $((${#sizes[@]} + ${#virtio[@]} + ${#cxl[@]} + ${#volatile[@]})) -gt 0 ] || sizes=("$VM_PMEM")

    claim_run "${name:-run}" "${name:+1}"
    if [ -n "$vm_uefi" ] && [ ! -f "$vm_uefi" ]; then
        cp "$VM_UEFI_VARS" "$vm_uefi" || die "no variables for UEFI firmware: run hack/install-deps vm (package ovmf)"
    fi
    if [ -n "$persist" ]; then
        case $persist in */* | .* | *[[:space:],]*) usage_error "--persist wants a plain word, not '$persist'" ;; esac
        mkdir -p "$VM_CACHE/pmem"
        exec {pmem_lock}>"$VM_CACHE/pmem/.$persist.lock"
        flock -n "$pmem_lock" || die "the memories '$persist' are in use by another run"
    fi
    for size in "${sizes[@]}"; do
        vm_pmem+=("$(image_path "$persist" pmem ${#vm_pmem[@]})")
        pmem_image "${vm_pmem[-1]}" "$size" "$vm_labels"
    done
    for size in "${virtio[@]}"; do
        vm_virtio+=("$(image_path "$persist" virtio ${#vm_virtio[@]})")
        pmem_image "${vm_virtio[-1]}" "$size"
    done
    for size in "${cxl[@]}"; do
        vm_cxl+=("$(image_path "$persist" cxl ${#vm_cxl[@]})")
        cxl_image "${vm_cxl[-1]}" "$size"
    done
    for size in "${volatile[@]}"; do vm_volatile+=("$(volatile_size "$size")"); done
    if [ -z "$persist" ]; then TEMPORARY+=("${vm_pmem[@]}" "${vm_virtio[@]}" "${vm_cxl[@]}" "${vm_cxl[@]/%/.labels}"); fi
    write_job "$@"
    vm_start
    tail -s 0.2 -n +1 -f --pid="$vm_pid" "$vm_run/output.log" &
    tail_pid=$!
    status=0
    vm_wait "$timeout" || status=$STATUS_NO_RESULT
    wait "$tail_pid" || true # ended by the machine's end
    [ "$status" != 0 ] || status=$(cat "$vm_run/status")
    return "$status"
}
