# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2034  # the parts of hack/vm share variables
# hack/vm evaluate: programs of libsplit/bench/paper on real DAX.

# Where the host's programs are seen inside.
EVALUATE_HOST=/mnt/host
# What they need of its /etc; the names in alternatives are those that /usr/bin leads to.
EVALUATE_ETC=(alternatives group ld.so.cache nsswitch.conf passwd)

evaluate_usage() {
    cat <<EOF
Usage: hack/vm evaluate --out DIR [OPTION]... -- OPTION-OF-INSIDE...

Boots one machine and runs rows of libsplit/bench/paper on a DAX file system in it, with this machine's own programs (its /usr is
seen inside, read-only). Called by "libsplit/bench/paper --grounds dax"; the results are added to the samples in DIR.

The machine has one processor. Where it is emulated its clock counts instructions of kernel and programs, a nanosecond each, which
nothing else on this machine disturbs.

  --kernel LINE  [$VM_KERNEL_DEFAULT]
  --type TYPE    file system: ext4 (stock) or ext4_splitfs (with our module) [ext4_splitfs]
  --rounds N     [1]
  --quick        a tenth of the work
  --see DIR      show DIR inside, read-only; may be repeated
  --name NAME    of the directory of the run [evaluate]
EOF
}

vm_evaluate_command() {
    local line=$VM_KERNEL_DEFAULT type=ext4_splitfs out='' rounds=1 name=evaluate see=() quick=() shares=() inside=() dir etc
    while [ $# -gt 0 ]; do
        case $1 in
        -h | --help)
            evaluate_usage
            return
            ;;
        --quick) quick=(--quick) ;;
        --kernel | --type | --rounds | --see | --name | --out)
            [ $# -ge 2 ] || usage_error "$1 wants a value"
            case $1 in
            --kernel) line=$2 ;;
            --type) type=$2 ;;
            --rounds) rounds=$2 ;;
            --see) see+=("$(realpath -e "$2")") ;;
            --name) name=$2 ;;
            --out) out=$2 ;;
            esac
            shift
            ;;
        --)
            shift
            break
            ;;
        *) usage_error "evaluate: unknown argument '$1'" ;;
        esac
        shift
    done
    [ -n "$out" ] || usage_error "evaluate: --out is needed"
    known_line "$line"
    build_type "$type" "$line" ext4 ext4_splitfs
    etc=$(mktemp -d)
    TEMPORARY+=("$etc")
    chmod 755 "$etc"
    for dir in "${EVALUATE_ETC[@]}"; do
        [ ! -e "/etc/$dir" ] || cp -a "/etc/$dir" "$etc/"
    done
    shares=(--share "$(realpath -e "$out")" --share-read "/usr=$EVALUATE_HOST/usr" --share-read "$etc=$EVALUATE_HOST/etc")
    for dir in "${see[@]}"; do
        inside+=(--see "$dir")
        case $dir/ in
        "$REPO_DIR"/* | "$VM_BUILD"/*) ;; # is seen in any case
        *) shares+=(--share-read "$dir") ;;
        esac
    done
    # One processor: with several the order in which they are emulated would be part of what is counted.
    count_instructions || progress "the processor is not emulated: times are the clock's"
    vm_run_command --kernel "$line" --name "$name" --timeout 14400 --cpus 1 --memory 2G --pmem 2G "${shares[@]}" -- \
        "$REPO_DIR/libsplit/bench/vm/evaluate" --type "$type" --host "$EVALUATE_HOST" --see "$(realpath -e "$out")" \
        "${inside[@]}" -- --rounds "$rounds" "${quick[@]}" --out "$(realpath -e "$out")" "$@"
}
