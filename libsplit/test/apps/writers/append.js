// SPDX-License-Identifier: Apache-2.0
const fs = require('fs');
const log = fs.openSync('log', 'a');
for (let n = Number(process.argv[2]); ; n++) {
    fs.writeSync(log, `${n} ${'x'.repeat(n * 7919 % 500)} ${n}\n`);
    fs.writeSync(1, `${n}\n`);
}
