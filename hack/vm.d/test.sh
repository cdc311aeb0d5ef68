# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2034  # the parts of hack/vm share variables
# hack/vm test: the tests that need a kernel and persistent memory of their own, each in machines of its own.

test_usage() {
    cat <<EOF
Usage: hack/vm test [OPTION]... [NAME | NAME@LINE]...

Builds what is needed, runs tests in virtual machines, and says at the end what passed and what failed.
What a test leaves is in BUILD/vm/NAME@LINE: output.log, console.log, dmesg.log and its own files.

  --list         the tests and the kernel lines they run on
  --quick        a few of them, in at most $VM_QUICK_SECONDS seconds (VM_QUICK_SECONDS) after downloads: what is not done by then has failed
  --resume       leave out what has passed already, with the same sources, seed, cuts and stress
  --kernel LINE  only on this line
  --seed N       random seed for the tests that take one; 0 chooses and prints one [$VM_SEED]
  --cuts N       power cuts of each power-cut test [$VM_CUTS]
  --stress S     seconds of each stress [$VM_STRESS]
  --at-once N    tests that run side by side [$VM_AT_ONCE]
  --no-build     take what was built before
EOF
}

trim() {
    local text=$1
    text=${text#"${text%%[![:space:]]*}"}
    printf '%s' "${text%"${text##*[![:space:]]}"}"
}

# read_test ROW: sets t_name, t_lines, t_limit, t_needs, t_what.
read_test() {
    local fields
    IFS='|' read -ra fields <<<"$1"
    t_name=$(trim "${fields[0]}") t_lines=$(trim "${fields[1]}") t_limit=$(trim "${fields[2]}")
    t_needs=$(trim "${fields[3]}") t_what=$(trim "${fields[4]}")
}

# What runs now, by TEST@LINE: its process, its start, the second in which it is stopped, and when it was last spoken of.
declare -A t_pid=() t_begun=() t_end=() t_stopped=() t_said=()
summary=() failed=0 passed=0 skipped=0
t_deadline='' # of all of them together, where there is one
t_key=''      # what a result is good for

# sources_key: a hash of everything that tests are made from.
sources_key() {
    (
        cd "$REPO_DIR" || exit
        git ls-files -z --cached --others --exclude-standard -- kernel-patch hack/vm hack/vm.d hack/lib libsplit csi-driver go.mod |
            xargs -0 cat 2>/dev/null || true # what has been removed is not there to be read
        echo "$VM_SEED $VM_CUTS $VM_STRESS ${SPLITFS_VM_KERNEL:-stock}"
    ) | sha256sum | cut -c1-32
}

# download_for LINES: what the network gives, however slow it is, is there before time is counted.
download_for() {
    local line
    get_root
    for line in "${VM_KERNELS[@]}"; do
        case $1 in *" $line "*) ;; *) continue ;; esac
        get_kernel "$line"
        [ ${#kernel_build[@]} = 0 ] || continue # it brings its own
        "$REPO_DIR/kernel-patch/fetch" --line "$line" --release "$kernel_release" >/dev/null ||
            die "headers and source of kernel $kernel_release cannot be fetched (see above)"
    done
}

# start_test LINE: the test that read_test has read, in the background.
start_test() {
    local id=$t_name@$1 dir=$VM_BUILD/vm/$t_name@$1 word options=() limit=$VM_TEST_LIMIT
    progress "$id: $t_what"
    t_limit=$((t_limit * VM_SLOWER))
    for word in $t_needs; do
        case $word in
        pmem=* | append=* | env=*) options+=("--${word%%=*}" "${word#*=}") ;;
        selinux) options+=("--$word") ;;
        esac
    done
    mkdir -p "$dir"
    if [ "$(type -t "test_${t_name//-/_}")" = function ]; then
        ("test_${t_name//-/_}" "$1" "$dir") >"$dir/test.log" 2>&1 &
    else
        "$HACK_DIR/vm" run --kernel "$1" --name "$id" --timeout $((t_limit + 4 * VM_STRESS)) --env "VM_SEED=$VM_SEED" \
            --env "VM_STRESS=$VM_STRESS" "${options[@]}" -- "$VM_PARTS/guest/jobs/$t_name" >"$dir/test.log" 2>&1 &
    fi
    [ "$t_limit" = 0 ] || limit=$((t_limit + 4 * VM_STRESS + VM_BOOT_TIMEOUT + 60))
    t_pid[$id]=$! t_begun[$id]=$SECONDS t_said[$id]=$SECONDS t_end[$id]=$((SECONDS + limit))
    [ -z "$t_deadline" ] || [ "${t_end[$id]}" -le "$t_deadline" ] || t_end[$id]=$t_deadline
    CHILDREN[$!]=1
}

# end_test ID: takes the result of a test whose process has ended.
end_test() {
    local id=$1 status=0 result
    wait "${t_pid[$id]}" || status=$?
    unset "CHILDREN[${t_pid[$id]}]" "t_pid[$id]"
    case $status in
    0)
        result=ok
        passed=$((passed + 1))
        echo "$t_key $id" >>"$VM_BUILD/vm/passed"
        ;;
    77)
        result=skip
        skipped=$((skipped + 1))
        ;;
    *)
        result=FAILED
        failed=$((failed + 1))
        printf '%s\n' "--- $id"
        tail -n 60 "$VM_BUILD/vm/$id/test.log" | sed 's/^/    /'
        ;;
    esac
    summary+=("$(printf '%-6s %-26s %4d s' "$result" "$id" $((SECONDS - t_begun[$id])))")
    printf '%s\n' "${summary[-1]}"
}

# stop_test ID: one that takes too long; it is given a minute to clean up.
stop_test() {
    local signal=TERM
    [ -z "${t_stopped[$1]:-}" ] || signal=KILL
    warn "$1 has taken $((SECONDS - t_begun[$1])) s: stopped by SIG$signal"
    echo "stopped after $((SECONDS - t_begun[$1])) s" >>"$VM_BUILD/vm/$1/test.log"
    kill "-$signal" "${t_pid[$1]}" 2>/dev/null || true # it may have ended by itself
    t_stopped[$1]=1
    t_end[$1]=$((SECONDS + 60))
}

# wait_for_room N: until fewer than N tests run; with a sign of life of each now and then.
wait_for_room() {
    local id last
    while [ ${#t_pid[@]} -ge "$1" ]; do
        sleep 0.3
        for id in "${!t_pid[@]}"; do
            if ! kill -0 "${t_pid[$id]}" 2>/dev/null; then
                end_test "$id"
            elif [ "$SECONDS" -ge "${t_end[$id]}" ]; then
                stop_test "$id"
            elif [ $((SECONDS - t_said[$id])) -ge 30 ]; then
                t_said[$id]=$SECONDS
                last=$(awk 'NF {line = $0} END {print substr(line, 1, 100)}' "$VM_BUILD/vm/$id/test.log")
                progress "  $id: $((SECONDS - t_begun[$id])) s: ${last:-no output yet}"
            fi
        done
    done
}

vm_test_command() {
    local only_line='' build=1 wanted=() row want line number rows=() needs=' ' lines=' ' at_once=$VM_AT_ONCE resume='' quick='' id
    local table=("${VM_TESTS[@]}")
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
        --resume) resume=1 ;;
        --quick)
            quick=1
            table=("${VM_QUICK[@]}")
            VM_STRESS=5
            ;;
        --kernel | --seed | --cuts | --stress | --at-once)
            [ $# -ge 2 ] || usage_error "$1 wants a value"
            case $1 in
            --kernel)
                known_line "$2"
                only_line=$2
                ;;
            --seed) VM_SEED=$2 ;;
            --cuts) VM_CUTS=$2 ;;
            --stress) VM_STRESS=$2 ;;
            --at-once) at_once=$2 ;;
            esac
            shift
            ;;
        -*) usage_error "test: unknown option '$1'" ;;
        *) wanted+=("$1") ;;
        esac
        shift
    done

    for number in "$VM_SEED" "$VM_CUTS" "$VM_STRESS" "$at_once"; do
        case $number in *[!0-9]* | '') usage_error "test: '$number' is not a number" ;; esac
    done
    [ "$at_once" -gt 0 ] || usage_error "test: --at-once wants 1 or more"

    # Every test on every line it knows, or what was asked for; a name that is none is an error.
    for row in "${table[@]}"; do
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
        done
    done
    for want in "${wanted[@]}"; do
        case "$(printf '%s\n' "${table[@]}" | awk -F'|' '{split($2, l, " "); gsub(/ /, "", $1); print $1; for (i in l) print $1 "@" l[i]}')" in
        "$want" | "$want"$'\n'* | *$'\n'"$want" | *$'\n'"$want"$'\n'*) ;;
        *) usage_error "test: there is no test '$want'; test --list shows them" ;;
        esac
    done
    [ "$VM_SEED" != 0 ] || VM_SEED=$((RANDOM * 32768 + RANDOM + 1))
    [ ${#rows[@]} -gt 0 ] || usage_error "test: nothing of that runs on kernel $only_line"

    progress "${#rows[@]} tests, seed $VM_SEED"
    t_key=$(sources_key)
    mkdir -p "$VM_BUILD/vm"
    touch "$VM_BUILD/vm/passed"
    for number in "${!rows[@]}"; do
        row=${rows[$number]}
        read_test "${row#*|}"
        id=$t_name@${row%%|*}
        if [ -n "$resume" ] && grep -qxF "$t_key $id" "$VM_BUILD/vm/passed"; then
            passed=$((passed + 1))
            summary+=("$(printf '%-6s %-26s before' ok "$id")")
            unset "rows[$number]"
            continue
        fi
        needs+="$t_needs "
        lines+="${row%%|*} "
    done
    if [ -n "$quick" ]; then
        download_for "$lines"
        t_deadline=$((SECONDS + VM_QUICK_SECONDS))
    fi
    if [ "$build" = 1 ]; then
        case $needs in *' programs '*) build_programs ;; esac
        case $needs in *' libsplit '*) build_libsplit ;; esac
        case $needs in *' libsplit-few '*) build_libsplit_few ;; esac
        case $needs in *' driver '*) build_driver ;; esac
        case $needs in *' relink '*) build_relink_tests ;; esac
        case $needs in *' changes '*) build_changes ;; esac
        for line in "${VM_KERNELS[@]}"; do
            case $lines in *" $line "*) case $needs in *' module '*) build_module "$line" ;; esac ;; esac
            case $lines in *" $line "*) case $needs in *' relink '*) build_debug_module "$line" ;; esac ;; esac
        done
    fi
    for row in "${rows[@]}"; do
        wait_for_room "$at_once"
        read_test "${row#*|}"
        if [ -n "$t_deadline" ] && [ "$SECONDS" -ge "$t_deadline" ]; then
            failed=$((failed + 1))
            summary+=("$(printf '%-6s %-26s not begun in time' FAILED "$t_name@${row%%|*}")")
            continue
        fi
        start_test "${row%%|*}"
    done
    wait_for_room 1
    printf '\n%s\n' "--- summary (seed $VM_SEED, accelerator $(choose_accel), results in $VM_BUILD/vm)"
    printf '%s\n' "${summary[@]}" "$passed passed, $failed failed, $skipped skipped in $((SECONDS - START_SECONDS)) s"
    [ "$failed" = 0 ]
}
