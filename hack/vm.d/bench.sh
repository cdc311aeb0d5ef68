# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2034  # the parts of hack/vm share variables
# hack/vm bench: the library against the kernel's file system on real DAX, in one machine.

bench_usage() {
    cat <<EOF
Usage: hack/vm bench [OPTION]...

Builds what is needed, boots one machine and measures in one run, in turns, the kernel's file system and the library's three modes
on it (libsplit/bench/vm). Prints the tables; bench-*.json are in BUILD/vm/NAME.

What is counted, where the machine is emulated, are instructions of kernel and programs together: QEMU's clock then advances one
nanosecond per instruction (-icount), which nothing else on this machine disturbs. With --time, and with KVM, it is time.

  --kernel LINE  [$VM_KERNEL_DEFAULT]
  --type TYPE    file system: ext4 (stock), ext4_splitfs (with our module), xfs (relink by reflink), xfs-exchange [ext4_splitfs]
  --mkfs WORDS   more words for mkfs, as for pmem-mount ("-O fast_commit")
  --rounds N     how often everything is measured [5]
  --zerocopy     instead: what reading and writing without a copy gains there, and splitfs_swap(3) (bench/peek, bench/patch, and the programs
                 of libsplit/examples but nginx)
  --time         time also where the machine is emulated
  --name NAME    of the directory [bench]
EOF
}

# count_instructions: the next machine's clock advances a nanosecond for each of them; false where it is not emulated.
count_instructions() {
    [ "$(choose_accel)" = tcg ] || return 1
    vm_extra=(-icount "shift=0,sleep=off")
}

# zerocopy_job: sets job, and shares the programs of libsplit/examples with the machine.
zerocopy_job() {
    local example dir
    job=("$REPO_DIR/libsplit/bench/vm/zerocopy" --type "$type" --rounds "$rounds")
    mkdir -p "$VM_BUILD/examples/decode"
    BUILD=$VM_BUILD "$REPO_DIR/libsplit/examples/decode/build" "$VM_BUILD/examples/decode"
    # The machine's system has none.
    cp "$(g++ -print-file-name=libstdc++.so.6)" "$VM_BUILD/examples/"
    BUILD=$VM_BUILD "$HACK_DIR/build-examples" kyotocabinet leveldb
    for example in kyotocabinet leveldb; do
        dir=$("$HACK_DIR/build-examples" --print-dir "$example")
        shared+=(--share-read "$dir=/opt/$example")
    done
}

vm_bench_command() {
    local line=$VM_KERNEL_DEFAULT type=ext4_splitfs rounds=5 count=1 name=bench mkfs='' job=() shared=() zerocopy=0 size=1G
    while [ $# -gt 0 ]; do
        case $1 in
        -h | --help)
            bench_usage
            return
            ;;
        --time) count=0 ;;
        --zerocopy) zerocopy=1 size=10G ;;
        --kernel | --type | --mkfs | --rounds | --name)
            [ $# -ge 2 ] || usage_error "$1 wants a value"
            case $1 in
            --kernel) line=$2 ;;
            --type) type=$2 ;;
            --mkfs) mkfs=$2 ;;
            --rounds) rounds=$2 ;;
            --name) name=$2 ;;
            esac
            shift
            ;;
        *) usage_error "bench: unknown argument '$1'" ;;
        esac
        shift
    done
    known_line "$line"
    case $rounds in *[!0-9]* | '' | 0) usage_error "--rounds wants a number, not '$rounds'" ;; esac
    build_type "$type" "$line" ext4 ext4_splitfs xfs xfs-exchange
    make_libsplit "the benchmark" "$VM_BUILD"/bench/{vm_bench,peek,patch,calls}
    [ "$count" = 0 ] || count_instructions || count=0
    job=("$REPO_DIR/libsplit/bench/vm/run" --type "$type" --rounds "$rounds")
    [ -z "$mkfs" ] || job+=(--mkfs "$mkfs")
    [ "$count" = 0 ] || job+=(--instructions)
    # One processor: with several the order in which they are emulated would be part of what is counted.
    [ "$zerocopy" = 0 ] || [ -z "$mkfs" ] || usage_error "--zerocopy and --mkfs don't go together"
    [ "$zerocopy" = 0 ] || zerocopy_job
    vm_run_command --kernel "$line" --name "$name" --timeout 1800 --pmem "$size" "${shared[@]}" --cpus "$((2 - count))" -- "${job[@]}"
}
