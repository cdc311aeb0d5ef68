-- SPDX-License-Identifier: Apache-2.0
local log = assert(io.open("log", "a"))
local n = tonumber(arg[1])
while true do
    assert(log:write(string.format("%d %s %d\n", n, ("x"):rep(n * 7919 % 500), n)))
    assert(log:flush())
    io.stdout:write(n, "\n")
    io.stdout:flush()
    n = n + 1
end
