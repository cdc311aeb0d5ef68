# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sources of Debian's packages, for what is built with changes of ours or with programs that no package has.

# debian_source PACKAGE: unpacks its source, with Debian's patches, below the working directory. apt checks the
# signatures. The machine's own lists stay as they are. The newest version that can be had: a mirror may have lost one that its lists
# still name.
debian_source() {
    local options=(-o "Dir::Etc::sourcelist=$PWD/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o "Dir::State::lists=$PWD/lists" -o APT::Sandbox::User=root -o Acquire::Languages=none) version
    # shellcheck disable=SC2016  # placeholders of apt, not of the shell
    apt-get indextargets 'Origin: Debian' 'Created-By: Packages' \
        --format 'deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' |
        sort -u >sources.list
    [ -s sources.list ] || die "$1: apt has no lists of Debian's packages: run apt-get update"
    mkdir -p lists/partial
    apt-get "${options[@]}" update >apt.log 2>&1 || {
        cat apt.log >&2
        die "$1: Debian's lists of sources cannot be had (see above)"
    }
    for version in $(apt-cache "${options[@]}" showsrc --only-source "$1" | sed -n 's/^Version: //p' | sort -rVu); do
        apt-get "${options[@]}" source --only-source "$1=$version" >>apt.log 2>&1 && return
    done
    cat apt.log >&2
    die "$1: its source cannot be had (see above)"
}
