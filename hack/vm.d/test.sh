# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2034  # the parts of hack/vm share variables
# hack/vm test: the tests that need a kernel and persistent memory of their own, each in machines of its own.

# NAME | kernel lines | seconds | what must be built, NVDIMMs | what it shows
# A test runs guest/jobs/NAME inside, or, where test_NAME is a function, that function outside.
VM_TESTS=(
    "oracle | 6.1 | 60 | programs | the power cuts' oracle accepts what is right and notices what is wrong (needs no machine)"
    "patches | 6.1 6.12 | 600 | | the kernel patches apply, pass checkpatch and compile (needs no machine)"
    "dax | 6.1 6.12 | 120 | programs module | DAX is real: statx, MAP_SYNC, 2 MiB faults counted; and is not where it should not be"
    "aged | 6.1 6.12 | 240 | programs module libsplit | a staging pool made on an aged volume gets 2 MiB mappings"
    "relink | 6.1 6.12 | 900 | relink | conformance of relink, e2fsck after each kind of file system"
    "relink-stress | 6.1 6.12 | 600 | relink | relink against faults, truncates and itself from several processes, e2fsck after each"
    "module | 6.1 6.12 | 0 | | the node's module manager: what it loads, refuses and reports (builds what it needs)"
    "libsplit-ext4 | 6.1 6.12 | 900 | module libsplit pmem=1G pmem=512M | libsplit's own tests on ext4 with our module"
    "libsplit-xfs | 6.12 | 900 | libsplit pmem=1G pmem=512M | libsplit's own tests on XFS with stock exchange-range"
    "power-cut-ext4 | 6.1 6.12 | 0 | programs module libsplit | power cuts on ext4 with our module, recovery, every acknowledged write"
    "power-cut-xfs | 6.12 | 0 | programs libsplit | power cuts on XFS with stock exchange-range"
)

test_usage() {
    cat <<EOF
Usage: hack/vm test [OPTION]... [NAME | NAME@LINE]...

Builds what is needed, runs tests in virtual machines, and says at the end what passed and what failed.
What a test leaves is in BUILD/vm/NAME@LINE: output.log, console.log, dmesg.log and its own files.

  --list         the tests and the kernel lines they run on
  --kernel LINE  only on this line
  --seed N       random seed for the tests that take one; 0 chooses and prints one [$VM_SEED]
  --cuts N       power cuts of each power-cut test [$VM_CUTS]
  --stress S     seconds of each stress [$VM_STRESS]
  --no-build     take what was built before
EOF
}

trim() {
    local text=$1
    text=${text#"${text%%[![:space:]]*}"}
    printf '%s' "${text%"${text##*[![:space:]]}"}"
}

# test_oracle LINE DIR: without a machine, in a second: every prefix the oracle accepts is one it should, and no damage escapes it.
test_oracle() {
    local powercut=$VM_BUILD/vm-bin/powercut work mode ops seed file size checked=0
    work=$(mktemp -d "$2/oracle.XXXXXX")
    truncate -s 4096 "$work/acks"
    accepts() { "$powercut" check "$1" "$work/files" "$work/acks" 0 "$seed" >/dev/null; }
    for ops in 1 17 300 1500; do
        seed=$((VM_SEED + ops))
        rm -rf "$work/files"
        mkdir "$work/files"
        "$powercut" load "$work/files" "$work/acks" 0 "$seed" "$ops"
        for mode in posix sync strict; do
            "$powercut" mark "$work/acks" 0 "$ops"
            accepts "$mode" || die "$mode refuses what $ops operations left"
            "$powercut" mark "$work/acks" 0 $((ops - 1))
            accepts "$mode" || die "$mode refuses the operation in flight as done"
            "$powercut" mark "$work/acks" 0 $((ops + 40))
            ! accepts "$mode" 2>/dev/null || die "$mode accepts that 40 acknowledged operations are lost, after $ops"
            "$powercut" mark "$work/acks" 0 "$ops"
            for file in "$work"/files/*; do
                size=$(stat -c %s "$file")
                [ "$size" -gt 0 ] || continue
                cp "$file" "$work/kept"
                head -c 16 "$work/kept" | tr '\000-\377' '\200-\377\000-\177' | dd of="$file" bs=16 conv=notrunc status=none
                ! accepts "$mode" 2>/dev/null || die "$mode accepts a changed first byte of ${file##*/}, after $ops"
                truncate -s $((size - 1)) "$file"
                ! accepts "$mode" 2>/dev/null || die "$mode accepts a lost last byte of ${file##*/}, after $ops"
                cp "$work/kept" "$file"
                checked=$((checked + 2))
            done
            touch "$work/files/stranger"
            ! accepts "$mode" 2>/dev/null || die "$mode accepts a file that was never created"
            rm "$work/files/stranger"
        done
    done
    echo "$checked damages noticed, none missed"
    rm -rf "$work"
}

power_cut_test() {
    exec "$HACK_DIR/vm" power-cut --kernel "$2" --type "$1" --cuts "$VM_CUTS" --seed "$VM_SEED" --name "$t_name@$2"
}
test_patches() { exec "$REPO_DIR/kernel-patch/test/check" "$1"; }
test_power_cut_ext4() { power_cut_test ext4_splitfs "$1"; }
test_module() { exec "$REPO_DIR/csi-driver/test/vm-module" --kernel "$1"; }
test_power_cut_xfs() { power_cut_test xfs-exchange "$1"; }

# read_test ROW: sets t_name, t_lines, t_limit, t_needs, t_what.
read_test() {
    local fields
    IFS='|' read -ra fields <<<"$1"
    t_name=$(trim "${fields[0]}") t_lines=$(trim "${fields[1]}") t_limit=$(trim "${fields[2]}")
    t_needs=$(trim "${fields[3]}") t_what=$(trim "${fields[4]}")
}

# run_test: one test on one line, in the background, with a sign of life now and then. Sets t_status and t_seconds.
run_test() {
    local line=$1 dir=$VM_BUILD/vm/$t_name@$1 begun=$SECONDS said=$SECONDS last word pmem=()
    for word in $t_needs; do
        case $word in pmem=*) pmem+=(--pmem "${word#pmem=}") ;; esac
    done
    mkdir -p "$dir"
    if [ "$(type -t "test_${t_name//-/_}")" = function ]; then
        ("test_${t_name//-/_}" "$line" "$dir") >"$dir/test.log" 2>&1 &
    else
        "$HACK_DIR/vm" run --kernel "$line" --name "$t_name@$line" --timeout $((t_limit + 4 * VM_STRESS)) --env "VM_SEED=$VM_SEED" --env "VM_STRESS=$VM_STRESS" "${pmem[@]}" -- \
            "$VM_PARTS/guest/jobs/$t_name" >"$dir/test.log" 2>&1 &
    fi
    child_pid=$!
    while kill -0 "$child_pid" 2>/dev/null; do
        sleep 0.5
        if [ $((SECONDS - said)) -ge 30 ]; then
            said=$SECONDS
            last=$(grep -v '^$' "$dir/test.log" | tail -n 1 | cut -c 1-100)
            progress "  $t_name@$line: $((SECONDS - begun)) s: ${last:-no output yet}"
        fi
    done
    t_status=0
    wait "$child_pid" || t_status=$?
    child_pid=
    t_seconds=$((SECONDS - begun))
}

vm_test_command() {
    local only_line='' build=1 wanted=() row want line rows=() needs=' ' lines=' ' result failed=0 passed=0 skipped=0 summary=()
    while [ $# -gt 0 ]; do
        case $1 in
        -h | --help)
            test_usage
            return
            ;;
        --list)
            for row in "${VM_TESTS[@]}"; do
                read_test "$row"
                printf '%-18s %-10s %s\n' "$t_name" "$t_lines" "$t_what"
            done
            return
            ;;
        --no-build) build=0 ;;
        --kernel | --seed | --cuts | --stress)
            [ $# -ge 2 ] || usage_error "$1 wants a value"
            case $1 in
            --kernel)
                known_line "$2"
                only_line=$2
                ;;
            --seed) VM_SEED=$2 ;;
            --cuts) VM_CUTS=$2 ;;
            --stress) VM_STRESS=$2 ;;
            esac
            shift
            ;;
        -*) usage_error "test: unknown option '$1'" ;;
        *) wanted+=("$1") ;;
        esac
        shift
    done

    # Every test on every line it knows, or what was asked for; a name that is none is an error.
    for row in "${VM_TESTS[@]}"; do
        read_test "$row"
        for line in $t_lines; do
            [ -z "$only_line" ] || [ "$only_line" = "$line" ] || continue
            if [ ${#wanted[@]} -gt 0 ]; then
                case " ${wanted[*]} " in
                *" $t_name "* | *" $t_name@$line "*) ;;
                *) continue ;;
                esac
            fi
            rows+=("$line|$row")
            needs+="$t_needs "
            lines+="$line "
        done
    done
    for want in "${wanted[@]}"; do
        case "$(printf '%s\n' "${VM_TESTS[@]}" | awk -F'|' '{split($2, l, " "); gsub(/ /, "", $1); print $1; for (i in l) print $1 "@" l[i]}')" in
        "$want" | "$want"$'\n'* | *$'\n'"$want" | *$'\n'"$want"$'\n'*) ;;
        *) usage_error "test: there is no test '$want'; test --list shows them" ;;
        esac
    done
    [ "$VM_SEED" != 0 ] || VM_SEED=$((RANDOM * 32768 + RANDOM + 1))
    [ ${#rows[@]} -gt 0 ] || usage_error "test: nothing of that runs on kernel $only_line"

    progress "${#rows[@]} tests, seed $VM_SEED"
    if [ "$build" = 1 ]; then
        case $needs in *' programs '*) build_programs ;; esac
        case $needs in *' libsplit '*) build_libsplit ;; esac
        case $needs in *' relink '*) build_relink_tests ;; esac
        for line in "${VM_KERNELS[@]}"; do
            case $lines in *" $line "*) case $needs in *' module '*) build_module "$line" ;; esac ;; esac
            case $lines in *" $line "*) case $needs in *' relink '*) build_debug_module "$line" ;; esac ;; esac
        done
    fi
    for row in "${rows[@]}"; do
        line=${row%%|*}
        read_test "${row#*|}"
        progress "$t_name@$line: $t_what"
        run_test "$line"
        case $t_status in
        0)
            result=ok
            passed=$((passed + 1))
            ;;
        77)
            result=skip
            skipped=$((skipped + 1))
            ;;
        *)
            result=FAILED
            failed=$((failed + 1))
            sed 's/^/    /' "$VM_BUILD/vm/$t_name@$line/test.log" | tail -n 60
            ;;
        esac
        summary+=("$(printf '%-6s %-26s %4d s' "$result" "$t_name@$line" "$t_seconds")")
        printf '%s\n' "${summary[-1]}"
    done
    printf '\n%s\n' "--- summary (seed $VM_SEED, accelerator $(choose_accel), results in $VM_BUILD/vm)"
    printf '%s\n' "${summary[@]}" "$passed passed, $failed failed, $skipped skipped in $((SECONDS - START_SECONDS)) s"
    [ "$failed" = 0 ]
}
