# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# The beginning of every end-to-end test: a namespace of its own, and its end. Tests are started by hack/e2e/run.

# shellcheck source-path=SCRIPTDIR source=../lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib/common.sh"
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$HACK_DIR/e2e/lib.sh"
# shellcheck source-path=SCRIPTDIR source=redis.sh
. "$HACK_DIR/e2e/redis.sh"

# Marks the namespaces of the tests, so that those of a run that was killed can be found.
TEST_LABEL=splitfs.io/e2e
NAMESPACE=${NAMESPACE:-e2e-$(basename "$0")-$$}

# at_exit commands run before the namespace goes, last one first: what a test changed outside its namespace.
AT_EXIT=()
at_exit() {
    AT_EXIT=("$1" "${AT_EXIT[@]}")
}

# Where a command failed that the test does not speak of: it ends there.
set -E
FAILED_AT=''
trap 'FAILED_AT="${BASH_SOURCE[0]##*/}, line $LINENO: $BASH_COMMAND"' ERR

finish() {
    local status=$? command
    set +e
    trap - ERR
    [ "$status" = 0 ] || [ -z "$FAILED_AT" ] || printf 'FAILED: %s\n' "$FAILED_AT" >&2
    [ "$status" = 0 ] || diagnose
    for command in "${AT_EXIT[@]}"; do
        "$command" || {
            printf 'FAILED: clean-up: %s\n' "$command" >&2
            status=1
        }
    done
    [ -n "${KEEP:-}" ] || kube delete namespace "$NAMESPACE" --wait=false >/dev/null || status=1
    exit "$status"
}
trap finish EXIT
# A test that takes too long is told to end by its runner: it then still shows and removes what it made.
trap 'fail "interrupted, or longer than its time limit"' INT TERM
make_namespace "$TEST_LABEL: 'true'"
