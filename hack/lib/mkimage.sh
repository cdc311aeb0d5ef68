# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Makes an image of one layer without any image builder. Meant for images that are a program and nothing else; the
# project's own images come from the Dockerfile.

# mkimage OUT.tar NAME:TAG ROOT ENTRYPOINT-JSON: write a docker-archive of the directory ROOT, reproducibly.
mkimage() {
    local out=$1 name=$2 root=$3 entrypoint=$4 work layer
    work=$(mktemp -d "$out.XXXXXX")
    tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$root" -cf "$work/layer.tar" .
    layer=$(sha256sum "$work/layer.tar")
    cat >"$work/config.json" <<EOF
{
  "architecture": "amd64",
  "os": "linux",
  "created": "1970-01-01T00:00:00Z",
  "config": {
    "Entrypoint": $entrypoint,
    "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
  },
  "rootfs": {"type": "layers", "diff_ids": ["sha256:${layer%% *}"]}
}
EOF
    printf '[{"Config": "config.json", "RepoTags": ["%s"], "Layers": ["layer.tar"]}]\n' "$name" >"$work/manifest.json"
    tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$work" -cf "$work/image" \
        manifest.json config.json layer.tar
    mv "$work/image" "$out"
    rm -rf "$work"
}
