# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154,SC2034  # the parts of hack/vm share variables
# The emulator: this machine's own. Where that is too old for a device, a newer one of Debian's backports serves that machine alone,
# unpacked into the cache like the kernels.

QEMU_PACKAGES=(qemu-system-x86 qemu-system-common qemu-system-data)

# knows_volatile_cxl QEMU...: has it the property (QEMU 8.1)?
knows_volatile_cxl() { "$@" -machine none -device cxl-type3,help 2>/dev/null | grep -q '^ *volatile-memdev='; }

# get_qemu: sets qemu to the command and its first words.
get_qemu() {
    need_commands "run hack/install-deps vm" qemu-system-x86_64
    qemu=(qemu-system-x86_64)
    if [ ${#vm_volatile[@]} = 0 ] || knows_volatile_cxl "${qemu[@]}"; then return; fi
    get_newer_qemu
}

# use_qemu DIR: sets qemu to the unpacked one. Firmware that is in packages of its own is the machine's.
use_qemu() {
    qemu=(env "QEMU_MODULE_DIR=$(echo "$1"/usr/lib/*/qemu)" "$1/usr/bin/qemu-system-x86_64" -L "$1/usr/share/qemu" -L /usr/share/seabios -L /usr/lib/ipxe/qemu)
}

# get_newer_qemu: sets qemu to the one of backports, fetched once. apt's own configuration and lists stay untouched.
get_newer_qemu() {
    local suite lock work dir=$VM_CACHE/qemu/unpacked
    mkdir -p "$VM_CACHE/qemu"
    exec {lock}>"$dir.lock"
    flock "$lock"
    if [ ! -d "$dir" ]; then
        # shellcheck source=/dev/null
        suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")-backports
        work=$(mktemp -d "$VM_CACHE/qemu/.new.XXXXXX")
        TEMPORARY+=("$work")
        progress "this machine's QEMU has no volatile CXL memory: unpacking that of $suite (once)"
        fetch_qemu "$work" "$suite"
        use_qemu "$work/tree"
        # It runs on the libraries of this machine's own.
        knows_volatile_cxl "${qemu[@]}" || die "QEMU of $suite does not run here, or has no volatile CXL memory either: $("${qemu[@]}" --version 2>&1 | head -n 1)"
        mv -T "$work/tree" "$dir"
        rm -rf "$work"
    fi
    exec {lock}>&-
    use_qemu "$dir"
}

# fetch_qemu DIR SUITE: unpacks the packages into DIR/tree.
fetch_qemu() {
    local keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    need_commands "a QEMU of version 8.1 or newer is needed; elsewhere than on Debian install one" apt-get dpkg-deb gpgv
    mkdir -p "$1"/{state/lists/partial,cache/archives/partial,packages}
    cat >"$1/apt.conf" <<EOT
Dir::State "$1/state";
Dir::State::status "$1/status";
Dir::Cache "$1/cache";
Dir::Etc::sourcelist "$1/sources.list";
Dir::Etc::sourceparts "-";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "3";
EOT
    : >"$1/status"
    echo "deb [signed-by=$keyring] $VM_MIRROR $2 main" >"$1/sources.list"
    (
        export APT_CONFIG=$1/apt.conf
        apt-get -qq update >&2 && cd "$1/packages" && apt-get -qq download "${QEMU_PACKAGES[@]}" >&2
    ) || die "no QEMU of $2 from $VM_MIRROR (see above); one of version 8.1 or newer has volatile CXL memory"
    for package in "$1"/packages/*.deb; do dpkg-deb -x "$package" "$1/tree"; done
}
