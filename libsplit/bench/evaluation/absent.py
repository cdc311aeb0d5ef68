# SPDX-License-Identifier: Apache-2.0
"""What is not in the evaluation, and why."""

ABSENT = [
    (
        "SplitFS, Figure 5: file system time within applications",
        "needs a profile of each program; CPU time is given as a whole",
    ),
    (
        "SplitFS, Figure 6: YCSB on LevelDB",
        "go-ycsb has no LevelDB; its workloads run on SQLite, and LevelDB runs its own db_bench",
    ),
    ("SplitFS, Table 7: Strata", "no package has Strata"),
    ("SplitFS, section 5.3: recovery time", "nothing is killed here, and libsplit/test/soak measures no time"),
    ("SplitFS, section 5.10: memory", "`make bench` measures it"),
    ("ctFS, Figure 12: YCSB on LevelDB", "as SplitFS, Figure 6"),
    ("ctFS, Figures 1 and 11: breakdowns", "need a profile of the kernel"),
    ("SubZero: Apache and Kyoto Cabinet", "the paper changed both; bench/peek and bench/patch measure the calls"),
    ("WineFS: aging", "needs persistent memory with 2 MiB pages"),
    (
        "programs on persistent memory",
        "`hack/vm bench` counts instructions of SplitFS's Tables 1 and 6 and Figure 3; programs are not in it",
    ),
    ("MongoDB, wtperf", "Debian's package of WiredTiger has no wtperf, and no package has MongoDB"),
    ("etcd's benchmark, Prometheus' TSDB", "static Go programs: the kernel serves their files in every mode"),
    ("a log on the JVM, as Kafka's", "no package has a benchmark of one"),
]
