# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2034  # the parts of hack/vm share variables
# hack/vm xfstests: a copy of xfstests that the user brings, on stock ext4 and on ext4_splitfs of the same kernel. Nothing of it is kept here.

# What its scripts need besides the packages of every machine.
VM_XFSTESTS_PACKAGES=(bc gawk hostname perl psmisc)
# What building a copy wants. Its configure does without libaio-dev and libcap-dev; then tests that need them are not run.
XFSTESTS_BUILD_PACKAGES="build-essential automake libtool-bin pkg-config xfslibs-dev uuid-dev libacl1-dev libattr1-dev libaio-dev libcap-dev"

xfstests_usage() {
    cat <<EOF
Usage: hack/vm xfstests --dir DIR [OPTION]...   (make vm-xfstests DIR=...)

Runs the tests of DIR, a built copy of xfstests, on stock ext4 and on ext4_splitfs of one kernel and prints a table of what came out
differently; exits with 1 when a test passes on stock ext4 and does not on ext4_splitfs. DIR is only read. Its programs run on Debian
$VM_SUITE: build it there, or on an older release. With SPLITFS_VM_KERNEL=uml the group takes hours instead of days where there is no KVM,
and is run without DAX. Each test has a time limit; a machine that dies in a test is started again for the next.
Building it wants the packages
$(printf '  %s\n' "$XFSTESTS_BUILD_PACKAGES")
and then, in DIR, make (not make install).
Results are in BUILD/vm/NAME: TYPE.results has a line for each test, TYPE/ what the tests themselves left.

  --dir DIR       xfstests, built
  --kernel LINE   [6.12]
  --group GROUP   generic and ext4 tests of this group; may be repeated [quick]
  --test TEST     only this one (generic/001); may be repeated
  --no-dax        with the page cache instead of DAX
  --at-once N     1: first the tests on stock ext4, then those on ext4_splitfs; 2: side by side [$VM_AT_ONCE]
  --limit S       seconds for one test [900]
  --resume        keep the results that are there, run what is missing
  --name NAME     of the directory [xfstests]
EOF
}

# xfstests_list DIR GROUP...: the names of the tests of the groups, in order.
xfstests_list() {
    local dir=$1 kind group
    shift
    for kind in generic ext4; do
        for group in "$@"; do
            awk -v kind="$kind" -v group="$group" '
                /^#/ { next }
                { for (i = 2; i <= NF; i++) if ($i == group) print kind "/" $1 }' "$dir/tests/$kind/group.list" 2>/dev/null
        done
    done | sort -u
}

# xfstests_on TYPE: all tests on one file system, in as many machines as die of them. Runs in a process of its own, whose only child is
# the machine.
xfstests_on() {
    local type=$1 results=$xfstests_dir/$1.results name status left before machine
    TEMPORARY=() CHILDREN=()
    trap clean_up EXIT
    trap 'exit 143' TERM
    touch "$results"
    while true; do
        left=$(grep -cvxFf <(cut -d' ' -f1 "$results") "$xfstests_dir/tests") || true # grep's word for none
        [ "$left" -gt 0 ] || break
        progress "$type: $left tests to do"
        before=$(wc -l <"$results")
        rm -f "$xfstests_dir/$type.current"
        status=0
        "$HACK_DIR/vm" xfstests-machine "${xfstests_machine[@]}" --name "${xfstests_dir##*/}-$type" --share "$xfstests_dir" \
            --timeout $((left * xfstests_limit + 60)) -- xfstests-suite --type "$type" --dir "$xfstests" --results "$xfstests_dir" \
            --limit "$xfstests_limit" "${xfstests_inside[@]}" &
        machine=$!
        CHILDREN[$machine]=1
        wait "$machine" || status=$?
        unset "CHILDREN[$machine]"
        vm_run=$VM_BUILD/vm/${xfstests_dir##*/}-$type
        watchers_said 2>/dev/null || vm_complained=1 # that machine has told why
        [ "$status" != 0 ] || continue
        # A machine that died took the test with it that was running.
        name=$(cat "$xfstests_dir/$type.current" 2>/dev/null) || true
        if [ "$status" = "$STATUS_NO_RESULT" ] && [ -n "$name" ]; then
            progress "$type: the machine died in $name"
            echo "$name died" >>"$results"
        fi
        [ "$(wc -l <"$results")" -gt "$before" ] || die "$type: nothing was run (status $status); see $VM_BUILD/vm/${xfstests_dir##*/}-$type"
    done
}

# xfstests_table: what differs; 1 when a test is worse on ext4_splitfs.
xfstests_table() {
    awk -v stock="$xfstests_dir/ext4.results" -v ours="$xfstests_dir/ext4_splitfs.results" '
        BEGIN {
            while ((getline line <stock) > 0) { split(line, f, " "); a[f[1]] = f[2]; sum["ext4 " f[2]]++ }
            while ((getline line <ours) > 0) { split(line, f, " "); b[f[1]] = f[2]; sum["ext4_splitfs " f[2]]++ }
            printf "| | pass | fail | notrun | timeout | died |\n| --- | --- | --- | --- | --- | --- |\n"
            split("ext4 ext4_splitfs", types, " ")
            for (t = 1; t <= 2; t++)
                printf "| %s | %d | %d | %d | %d | %d |\n", types[t], sum[types[t] " pass"], sum[types[t] " fail"], sum[types[t] " notrun"],
                    sum[types[t] " timeout"], sum[types[t] " died"]
            for (name in a) if (name in b) {
                if (a[name] != b[name]) differ[name] = 1
                else if (a[name] != "pass" && a[name] != "notrun") same = same " " name
            }
            for (name in differ) { n++; lines = lines sprintf("| %s | %s | %s |\n", name, a[name], b[name]); if (a[name] == "pass") worse = 1 }
            if (n) printf "\n| differs | ext4 | ext4_splitfs |\n| --- | --- | --- |\n%s", lines
            else printf "\nNo test came out differently.\n"
            if (same != "") printf "\nNeither passes:%s\n", same
            exit worse
        }'
}

vm_xfstests_command() {
    local groups=() tests=() line=6.12 name=xfstests resume='' test type worse=0
    xfstests_at_once=$VM_AT_ONCE
    xfstests='' xfstests_limit=900 xfstests_inside=()
    while [ $# -gt 0 ]; do
        case $1 in
        -h | --help)
            xfstests_usage
            return
            ;;
        --no-dax) xfstests_inside+=(--no-dax) ;;
        --resume) resume=1 ;;
        --dir | --kernel | --group | --test | --limit | --at-once | --name)
            [ $# -ge 2 ] || usage_error "$1 wants a value"
            case $1 in
            --dir) xfstests=$(realpath -e "$2") || die "--dir: there is no directory $2" ;;
            --kernel) line=$2 ;;
            --group) groups+=("$2") ;;
            --test) tests+=("$2") ;;
            --limit) xfstests_limit=$2 ;;
            --at-once) xfstests_at_once=$2 ;;
            --name) name=$2 ;;
            esac
            shift
            ;;
        *) usage_error "xfstests: unknown argument '$1'" ;;
        esac
        shift
    done
    [ -n "$xfstests" ] || usage_error "xfstests: --dir is missing: a copy of xfstests, built (make vm-xfstests DIR=...)"
    [ -x "$xfstests/check" ] || die "$xfstests is no copy of xfstests: there is no check"
    if [ ! -x "$xfstests/ltp/fsstress" ] || [ ! -f "$xfstests/tests/generic/group.list" ]; then
        die "$xfstests has not been built: run make there, with the packages $XFSTESTS_BUILD_PACKAGES"
    fi
    case $xfstests_limit in *[!0-9]* | '') usage_error "--limit wants seconds, not '$xfstests_limit'" ;; esac
    case $xfstests_at_once in *[!0-9]* | '' | 0) usage_error "--at-once wants 1 or 2, not '$xfstests_at_once'" ;; esac
    known_line "$line"
    for test in "${tests[@]}"; do
        case $test in
        generic/* | ext4/*) [ -f "$xfstests/tests/$test" ] || usage_error "--test: $xfstests has no test $test" ;;
        *) usage_error "--test wants a test of generic or ext4 (generic/001), not '$test'" ;;
        esac
    done
    case $name in */* | .* | '' | *[[:space:],:=]*) usage_error "a run's name is a plain word, not '$name'" ;; esac
    [ ${#groups[@]} -gt 0 ] || groups=(quick)
    xfstests_dir=$VM_BUILD/vm/$name
    mkdir -p "$xfstests_dir"
    if [ ${#tests[@]} -gt 0 ]; then
        printf '%s\n' "${tests[@]}"
    else
        xfstests_list "$xfstests" "${groups[@]}"
    fi >"$xfstests_dir/tests"
    [ -s "$xfstests_dir/tests" ] || die "$xfstests has no tests of ${groups[*]}"
    [ -n "$resume" ] || rm -rf "$xfstests_dir"/ext4{,_splitfs}{,.results,.current}
    build_module "$line"
    [ "${SPLITFS_VM_KERNEL:-stock}" != uml ] || xfstests_inside+=(--no-dax)
    # Tests of quota look into the kernel's configuration.
    xfstests_machine=(--kernel "$line" --pmem 2G --pmem 2G --memory 2G --share-read "$xfstests" --share-read "$kernel_image/boot=/boot")
    xfstests_failed=0
    for type in ext4 ext4_splitfs; do
        [ "$xfstests_at_once" -gt 1 ] || xfstests_wait
        (xfstests_on "$type") &
        CHILDREN[$!]=1
    done
    xfstests_wait
    xfstests_table || worse=1
    [ "$xfstests_failed" = 0 ] || die "not all tests were run, or a kernel has complained (see above); --resume goes on"
    return $worse
}

# xfstests_wait: until nothing runs. Sets xfstests_failed where something went wrong that is no test's result.
xfstests_wait() {
    local pid
    for pid in "${!CHILDREN[@]}"; do
        wait "$pid" || xfstests_failed=1
        unset "CHILDREN[$pid]"
    done
}

# One machine with the packages that the tests want.
vm_xfstests_machine_command() {
    VM_PACKAGES+=("${VM_XFSTESTS_PACKAGES[@]}")
    vm_run_command "$@"
}
