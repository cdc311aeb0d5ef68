# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Processes are known by pid, start time and boot: a pid alone may belong to somebody else by the time it is used.
# Pids inside a node are numbers of the node's own PID namespace; they are looked up in the node's /proc, the optional
# last argument of these functions.

# process_start PID [PROC]: the start time in clock ticks since boot; fails when there is no such process (a zombie is none).
process_start() {
    local stat
    { stat=$(<"${2:-/proc}/$1/stat"); } 2>/dev/null || return 1
    # The second field is the command in parentheses and may itself hold spaces and parentheses.
    stat=${stat##*) }
    # shellcheck disable=SC2086  # splitting into fields is wanted
    set -- $stat
    [ "$1" != Z ] && [ "$1" != X ] || return 1
    printf '%s\n' "${20}"
}

# process_id PID [PROC]: what identifies the process, as one line for a file.
process_id() {
    local start
    start=$(process_start "$@") || return 1
    printf '%s %s %s\n' "$1" "$start" "$(cat /proc/sys/kernel/random/boot_id)"
}

# recorded_pid FILE [PROC]: the pid in FILE, when that very process is still running; fails otherwise.
recorded_pid() {
    local pid start boot
    [ -f "$1" ] || return 1
    read -r pid start boot <"$1" || return 1
    [ "$boot" = "$(cat /proc/sys/kernel/random/boot_id)" ] || return 1
    [ "$(process_start "$pid" "${2:-/proc}")" = "$start" ] || return 1
    printf '%s\n' "$pid"
}

# kill_recorded FILE: end the recorded process at once and wait until it is gone.
kill_recorded() {
    local pid
    pid=$(recorded_pid "$1") || return 0
    kill -KILL "$pid" 2>/dev/null || true # it may have ended by itself just now; the wait below decides
    wait_until 30 "end of process $pid" process_gone "$1"
}

process_gone() {
    ! recorded_pid "$1" >/dev/null
}

# close_inherited: close every descriptor but the first three, in a subshell that starts a daemon. The lock is among them, and
# what the caller of this script may have left open: a daemon that kept a pipe would let its reader wait for ever.
close_inherited() {
    local fd
    for fd in "/proc/$BASHPID/fd"/*; do
        fd=${fd##*/}
        # 255 is the shell's own, closed by exec.
        [ "$fd" -le 2 ] || [ "$fd" = 255 ] || eval "exec $fd>&-"
    done
}
