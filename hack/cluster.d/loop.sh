# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Loop devices are global to the machine and outlive the node that attached them. Those of the cluster are told by the
# inode behind them: the path that the kernel shows is the one seen inside the node, which may be gone or be another
# file on the machine.

# own_loops: the loop devices backed by a file below the state directory.
own_loops() {
    local loops device inode name files
    loops=$(losetup --list --noheadings --output NAME,BACK-MAJ:MIN,BACK-INO) || die "loop devices cannot be listed"
    [ -n "$loops" ] && [ -d "$RUN" ] || return 0
    files=$'\n'$(find "$RUN" -xdev -type f -printf '%i\n')$'\n'
    while read -r name device inode; do
        # Files of the node's root overlay appear with the overlay's own device, which has no major number.
        case $device in
        "$(stat -c '%Hd:%Ld' "$RUN")" | 0:*) ;;
        *) continue ;;
        esac
        [[ $files != *$'\n'"$inode"$'\n'* ]] || printf '%s\n' "$name"
    done <<<"$loops"
}

no_own_loops() {
    [ -z "$(own_loops)" ]
}

detach_loops() {
    local name
    for name in $(own_loops); do
        # A device that is still mounted somewhere is released with its last user.
        losetup --detach "$name"
    done
    wait_until 30 "release of loop devices" no_own_loops || die "still attached: $(own_loops | tr '\n' ' ')"
}
