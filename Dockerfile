# SPDX-License-Identifier: Apache-2.0
# Every container image of SplitFS, one target each: csi-driver, injector-webhook, csi-provisioner, csi-resizer, csi-snapshotter,
# snapshot-controller, module-builder, apps, suite.
#
# Programs come from build/image/, which `hack/images --stage` fills; hack/images then builds all targets with buildah over a
# Debian base made from packages. With Docker and its public base image the same file is used like this:
#
#   hack/images --stage
#   docker build --target csi-driver -t localhost/splitfs/csi-driver:dev .
ARG BASE_IMAGE=debian:trixie-slim

FROM ${BASE_IMAGE} AS debian

# The programs that the node service runs, with their packages: only the programs go into the image.
# trixie: the first Debian whose mkfs.xfs knows `-i exchange=1` (xfsprogs 6.10).
# mount and losetup: package mount; blkid, wipefs and blkdiscard: package util-linux; ndctl, lvm2 and thin-provisioning-tools: volumes on persistent memory.
# The installation of lvm2 reads all disks that it sees, which here are the building machine's: it is given none.
FROM debian AS node-programs
RUN mkdir /tmp/lvm && echo 'devices { filter = [ "r|.*|" ] }' >/tmp/lvm/lvm.conf \
 && apt-get update \
 && LVM_SYSTEM_DIR=/tmp/lvm apt-get install --yes --no-install-recommends e2fsprogs lvm2 mount ndctl thin-provisioning-tools util-linux xfsprogs
COPY hack/lib/slim-root /usr/local/bin/
# First what whoever looks into a node's pod needs, the end-to-end tests among them; cp: the init container that hands splitfs-csi to others.
RUN slim-root /slim sh cat cp cut dd grep head ls mkdir mv readlink rm seq sha256sum sleep sort stat tail test touch tr wc \
    mkfs.xfs xfs_growfs xfs_repair xfs_db mkfs.ext4 e2fsck resize2fs tune2fs /etc/mke2fs.conf \
    mount umount losetup blkid wipefs blkdiscard lvm /etc/lvm/lvm.conf thin_check thin_repair thin_dump ndctl

FROM scratch AS csi-driver
COPY --from=node-programs /slim/ /
# A program whose library is missing must stop this build, not a volume.
RUN mkfs.xfs -V && xfs_growfs -V && xfs_repair -V && xfs_db -V && mkfs.ext4 -V && e2fsck -V \
 && for program in resize2fs tune2fs; do case $($program 2>&1) in *Usage*) ;; *) exit 1 ;; esac; done \
 && mount --version && umount --version && losetup --version && blkid --version && wipefs --version && blkdiscard --version \
 && ndctl --version && lvm version && thin_check --version && thin_repair --version && thin_dump --version && cp --version && ls /
# From what changes least to what changes most, so that a rebuilt library is a small new layer.
COPY build/image/csi-driver/driver/ /usr/local/bin/
COPY build/image/csi-driver/library/bin/ /usr/local/bin/
COPY build/image/csi-driver/library/lib/ /usr/local/lib/splitfs/
# The command line is linked against the building machine's C library: newer than the image's would show here.
RUN splitfs --help >/dev/null && splitfs-csi --help >/dev/null
ENTRYPOINT ["/usr/local/bin/splitfs-csi"]

# The programs of Kubernetes CSI that speak to the driver, one image each and the program where the project's own images have it: those can be
# used instead. Each is 70 MB: a node takes only what runs there.
FROM scratch AS csi-provisioner
COPY build/image/csi-provisioner/ /
ENTRYPOINT ["/csi-provisioner"]

FROM scratch AS csi-resizer
COPY build/image/csi-resizer/ /
ENTRYPOINT ["/csi-resizer"]

FROM scratch AS csi-snapshotter
COPY build/image/csi-snapshotter/ /
ENTRYPOINT ["/csi-snapshotter"]

FROM scratch AS snapshot-controller
COPY build/image/snapshot-controller/ /
ENTRYPOINT ["/snapshot-controller"]

FROM scratch AS injector-webhook
COPY build/image/injector-webhook/ /
USER 65532:65532
ENTRYPOINT ["/splitfs-injector"]

# Builds the kernel module on nodes (docs/module.md). gcc-12: what Debian 12's kernels were built with, and their headers ask for;
# gcc: Debian 13's. gpgv: headers and source may come from Debian's archive. libssl3t64: sign-file of the headers.
FROM debian AS module-builder
RUN apt-get update \
 && apt-get install --yes --no-install-recommends gcc gcc-12 gpgv kmod libc6-dev libelf1t64 libssl3t64 make patch xz-utils \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/apt/archives/*.deb /var/log/apt /var/log/*.log /var/cache/ldconfig
COPY build/image/module-builder/ /opt/splitfs/
RUN /opt/splitfs/kernel-patch/build --help >/dev/null

# Applications for the quickstart and the end-to-end tests, as Debian ships them: nothing of SplitFS is in this image.
FROM debian AS apps
# Installing postgresql would make a database; the tests make their own.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends busybox fio git postgresql-common redis-server redis-tools sqlite3 \
 && sed -i 's/^#\?create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf \
 && apt-get install --yes --no-install-recommends postgresql \
 && rm -rf /usr/lib/postgresql/*/lib/llvmjit* /usr/lib/postgresql/*/lib/bitcode /usr/lib/*/libLLVM* /usr/share/postgresql/*/locale \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/apt/archives/*.deb /var/log/apt /var/log/*.log /var/cache/ldconfig

# What the pods of the Kubernetes storage suite run (hack/storage-suite): dynamically linked programs, which the library can serve. Some of
# its scripts use "let", which BusyBox's shell knows and Debian's does not.
FROM debian AS suite
RUN apt-get update \
 && apt-get install --yes --no-install-recommends busybox e2fsprogs mount util-linux \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/apt/archives/*.deb /var/log/apt /var/log/*.log /var/cache/ldconfig \
 && ln -sf busybox /usr/bin/sh && sh -c 'let i=1'
COPY build/image/suite/ /
ENTRYPOINT ["/agnhost"]
CMD ["pause"]
