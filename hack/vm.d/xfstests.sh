# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2034  # the parts of hack/vm share variables
# hack/vm xfstests: a copy of xfstests that the user brings, on stock ext4 and on ext4_splitfs of the same kernel. Nothing of it is kept here.

# What its scripts need besides the packages of every machine.
VM_XFSTESTS_PACKAGES=(bc gawk hostname perl psmisc)

xfstests_usage() {
    cat <<EOF
Usage: hack/vm xfstests --dir DIR [OPTION]...   (make vm-xfstests DIR=...)

Runs the tests of DIR, a built copy of xfstests, on stock ext4 and on ext4_splitfs of one kernel and prints a table of what came out
differently; exits with 1 when a test passes on stock ext4 and does not on ext4_splitfs. DIR is only read. Its programs run on Debian
$VM_SUITE: build it there, or on an older release. Each test has a time limit; a machine that dies in a test is started again for the next.
Results are in BUILD/vm/NAME: TYPE.results has a line for each test, TYPE/ what the tests themselves left.

  --dir DIR       xfstests, built
  --kernel LINE   [6.12]
  --group GROUP   generic and ext4 tests of this group; may be repeated [quick]
  --test TEST     only this one (generic/001); may be repeated
  --no-dax        with the page cache instead of DAX
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

# xfstests_on TYPE: all tests on one file system, in as many machines as die of them.
xfstests_on() {
    local type=$1 results=$xfstests_dir/$1.results name status left before
    touch "$results"
    while true; do
        left=$(grep -cvxFf <(cut -d' ' -f1 "$results") "$xfstests_dir/tests") || true # grep's word for none
        [ "$left" -gt 0 ] || break
        progress "$type: $left tests to do"
        before=$(wc -l <"$results")
        rm -f "$xfstests_dir/$type.current"
        status=0
        ("$HACK_DIR/vm" xfstests-machine "${xfstests_machine[@]}" --name "${xfstests_dir##*/}-$type" --share "$xfstests_dir" \
            --timeout $((left * xfstests_limit + 60)) -- xfstests-suite --type "$type" --dir "$xfstests" --results "$xfstests_dir" \
            --limit "$xfstests_limit" "${xfstests_inside[@]}") || status=$?
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
    local groups=() tests=() line=6.12 name=xfstests resume=''
    xfstests='' xfstests_limit=900 xfstests_inside=()
    while [ $# -gt 0 ]; do
        case $1 in
        -h | --help)
            xfstests_usage
            return
            ;;
        --no-dax) xfstests_inside+=(--no-dax) ;;
        --resume) resume=1 ;;
        --dir | --kernel | --group | --test | --limit | --name)
            [ $# -ge 2 ] || usage_error "$1 wants a value"
            case $1 in
            --dir) xfstests=$(realpath -e "$2") || die "--dir: there is no directory $2" ;;
            --kernel) line=$2 ;;
            --group) groups+=("$2") ;;
            --test) tests+=("$2") ;;
            --limit) xfstests_limit=$2 ;;
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
    if [ ! -x "$xfstests/ltp/fsstress" ] || [ ! -f "$xfstests/tests/generic/group.list" ]; then die "$xfstests has not been built: see its README"; fi
    case $xfstests_limit in *[!0-9]* | '') usage_error "--limit wants seconds, not '$xfstests_limit'" ;; esac
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
    xfstests_machine=(--kernel "$line" --pmem 2G --pmem 2G --memory 2G --share-read "$xfstests")
    xfstests_on ext4
    xfstests_on ext4_splitfs
    xfstests_table
}

# One machine with the packages that the tests want.
vm_xfstests_machine_command() {
    VM_PACKAGES+=("${VM_XFSTESTS_PACKAGES[@]}")
    vm_run_command "$@"
}
