# SPDX-License-Identifier: Apache-2.0
use strict;
use warnings;
use Fcntl;
sysopen(my $log, "log", O_WRONLY | O_CREAT | O_APPEND) or die $!;
for (my $n = $ARGV[0]; ; $n++) {
    syswrite($log, "$n " . "x" x ($n * 7919 % 500) . " $n\n") or die $!;
    syswrite(STDOUT, "$n\n");
}
