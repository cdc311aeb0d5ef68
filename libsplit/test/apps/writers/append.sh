# SPDX-License-Identifier: Apache-2.0
n=$1 x=
while [ ${#x} -lt 500 ]; do x=${x}xxxxxxxxxx; done
while :; do
    printf '%d %.*s %d\n' "$n" $((n * 7919 % 500)) "$x" "$n" >>log
    echo "$n"
    n=$((n + 1))
done
