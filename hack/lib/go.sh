# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Finds a Go toolchain that is new enough for this module, or fetches one from the Go module proxy.
# To be sourced after common.sh.

# The toolchain that is fetched when the machine has none. The hash is the one the Go checksum database gives for
# golang.org/toolchain: it covers the content of the archive, so it is checked before anything out of it is run.
GO_VERSION=1.26.8
GO_TOOLCHAIN=v0.0.1-go$GO_VERSION.linux-amd64
GO_TOOLCHAIN_HASH=h1:ZOmGe1OnfREDMIdb1Qi4G9JSuDPBLGExZMQ4nis1RXM=

go_wanted() {
    awk '$1 == "go" { print $2; exit }' "$REPO_DIR/go.mod"
}

# go_new_enough GO: whether that binary runs and is at least what go.mod asks for.
go_new_enough() {
    local have wanted
    have=$(GOTOOLCHAIN=local "$1" env GOVERSION 2>/dev/null) || return 1
    have=${have#go}
    wanted=$(go_wanted)
    [ "$(printf '%s\n%s\n' "$wanted" "${have%%[!0-9.]*}" | sort -V | head -n 1)" = "$wanted" ]
}

# find_go: prints the path of a Go binary that is new enough; fails when there is none.
find_go() {
    local candidate
    for candidate in "$(command -v go || true)" /usr/local/go/bin/go "$SPLITFS_CACHE/go/$GO_TOOLCHAIN/bin/go"; do
        if [ -x "$candidate" ] && go_new_enough "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    return 1
}

# ensure_go: like find_go, fetching the toolchain first when there is none.
ensure_go() {
    find_go && return
    fetch_go
    find_go || die "the fetched Go $GO_VERSION is older than the $(go_wanted) that go.mod asks for: raise GO_VERSION in hack/lib/go.sh"
}

# go_proxies: the proxies of $GOPROXY, one a line. `direct` and `off` cannot serve a toolchain archive.
go_proxies() {
    printf '%s' "${GOPROXY:-https://proxy.golang.org}" | sed 's![,|]!\n!g' | grep -E '^https?://' || true
}

fetch_go() {
    local work proxy url got dir=$SPLITFS_CACHE/go/$GO_TOOLCHAIN
    [ "$(uname -m)" = x86_64 ] || die "no Go >= $(go_wanted) found, and only linux/amd64 can be fetched: install it from https://go.dev/dl"
    need_commands "run hack/install-deps build" curl unzip sha256sum base64
    mkdir -p "$SPLITFS_CACHE/go"
    work=$(mktemp -d "$SPLITFS_CACHE/go/.fetch.XXXXXX")
    # The unpacked archive is small enough to be thrown away and fetched again after any failure.
    # shellcheck disable=SC2064  # $work is wanted as it is now
    trap "rm -rf '$work'" EXIT
    for proxy in $(go_proxies); do
        url=${proxy%/}/golang.org/toolchain/@v/$GO_TOOLCHAIN.zip
        progress "Go $GO_VERSION: fetching $url (70 MB)"
        curl --fail --silent --show-error --location --retry 3 --output "$work/go.zip" "$url" && break
        rm -f "$work/go.zip"
    done
    [ -f "$work/go.zip" ] || die "Go $GO_VERSION: no proxy of GOPROXY=${GOPROXY:-https://proxy.golang.org} served golang.org/toolchain@$GO_TOOLCHAIN; install Go >= $(go_wanted) by hand and put it on PATH"
    unzip -q "$work/go.zip" -d "$work/tree"
    got=$(go_directory_hash "$work/tree")
    [ "$got" = "$GO_TOOLCHAIN_HASH" ] || die "Go $GO_VERSION: the archive's hash is $got, expected $GO_TOOLCHAIN_HASH; not used"
    # Module archives carry no mode bits.
    chmod +x "$work/tree/golang.org/toolchain@$GO_TOOLCHAIN"/bin/* \
        "$work/tree/golang.org/toolchain@$GO_TOOLCHAIN"/pkg/tool/linux_amd64/*
    rm -rf "$dir"
    mv "$work/tree/golang.org/toolchain@$GO_TOOLCHAIN" "$dir"
    rm -rf "$work"
    trap - EXIT
    progress "Go $GO_VERSION: unpacked to $dir"
}

# go_directory_hash DIR: the module system's "h1:" hash of the files below DIR.
go_directory_hash() {
    local hex
    hex=$(cd "$1" && find . -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum)
    hex=${hex%% *}
    # shellcheck disable=SC2059  # the format is the point: \xNN for every byte
    printf 'h1:%s\n' "$(printf "$(printf '%s' "$hex" | sed 's/../\\x&/g')" | base64)"
}
