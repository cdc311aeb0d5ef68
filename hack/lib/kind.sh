# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What hack/cluster and hack/kind-image both know of kind. To be sourced after common.sh.

# choose_kind_provider: sets KIND_EXPERIMENTAL_PROVIDER, which kind itself reads, to docker or podman.
choose_kind_provider() {
    case ${KIND_EXPERIMENTAL_PROVIDER:-} in
    docker | podman) ;;
    '')
        if docker info >/dev/null 2>&1; then
            KIND_EXPERIMENTAL_PROVIDER=docker
        elif command -v podman >/dev/null; then
            KIND_EXPERIMENTAL_PROVIDER=podman
        else
            die "kind needs Docker, whose daemon answers, or Podman (hack/install-deps kind)"
        fi
        ;;
    *) die "KIND_EXPERIMENTAL_PROVIDER='$KIND_EXPERIMENTAL_PROVIDER': known are docker and podman" ;;
    esac
    export KIND_EXPERIMENTAL_PROVIDER
}
