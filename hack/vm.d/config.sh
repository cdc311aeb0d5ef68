# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034  # settings of the other parts
# What the virtual machines are made of, and where it is kept.

VM_PARTS=$HACK_DIR/vm.d
VM_CACHE=$SPLITFS_CACHE/vm
# Programs, and below vm/ the results: BUILD as in the Makefile.
VM_BUILD=$(realpath -m "${BUILD:-$REPO_DIR/build}")

VM_KERNELS=(6.1 6.12 7.3)
VM_KERNEL_DEFAULT=6.1

# One root file system for every kernel: Debian 13's, because its mkfs.xfs knows the exchange-range feature.
VM_SUITE=trixie
VM_MIRROR=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
VM_PACKAGES=(acl attr bsdextrautils cxl daxctl e2fsprogs file iproute2 jq kmod libasan8 libpmem1 libtsan2 libubsan1 lvm2 ndctl procps
    python3-minimal quota sqlite3 strace thin-provisioning-tools util-linux xfsprogs)
# What hack/vm run --selinux has besides: Debian's reference policy, and what loads it. It makes a root file system of its own.
VM_SELINUX_PACKAGES=(policycoreutils selinux-policy-default selinux-utils)
# Raised by hand when root.sh makes another tree from the same packages.
VM_ROOT_RECIPE=1

# Firmware with variables, of the package ovmf, for --uefi.
VM_UEFI_CODE=/usr/share/OVMF/OVMF_CODE_4M.fd
VM_UEFI_VARS=/usr/share/OVMF/OVMF_VARS_4M.fd

VM_MEMORY=1536M
VM_CPUS=2
VM_PMEM=1G
VM_TIMEOUT=600
# Until the job begins. Seconds with KVM, 15 to 30 without it, minutes when the machine has other things to do.
VM_BOOT_TIMEOUT=${SPLITFS_VM_BOOT_TIMEOUT:-300}
# A kernel that watches itself takes several times as long, and memory for what it notes.
VM_SLOWER=1
if [ "${SPLITFS_VM_KERNEL:-stock}" = debug ]; then
    VM_MEMORY=3G VM_SLOWER=5
    VM_TIMEOUT=$((VM_TIMEOUT * VM_SLOWER)) VM_BOOT_TIMEOUT=$((VM_BOOT_TIMEOUT * VM_SLOWER))
fi
# Tests do the same every time; another seed makes them do something else.
VM_SEED=${VM_SEED:-20261121}
VM_CUTS=${VM_CUTS:-6}
VM_STRESS=${VM_STRESS:-20}
# For the tests that bring no limit of their own: what takes longer hangs.
VM_TEST_LIMIT=${VM_TEST_LIMIT:-$((7200 * VM_SLOWER))}
# Emulated processors are threads, and most of a machine's work is one: two machines share two cores well.
VM_AT_ONCE=${VM_AT_ONCE:-2}
