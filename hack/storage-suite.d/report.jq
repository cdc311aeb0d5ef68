# SPDX-License-Identifier: Apache-2.0
# The summary of a run, from Ginkgo's JSON report. $excluded: what was never to run, as [{pattern, why}].

def name: [.ContainerHierarchyTexts[]?, .LeafNodeText] | join(" ");
# Without what all names begin with.
def short: name | sub("^External Storage "; "") | sub("\\[Driver: [^]]*\\] "; "");
# The part of the suite: some tests have a group of their own in it, without a name even.
def part: [.ContainerHierarchyTexts[] | select(startswith("[Testpattern"))][0] // "";
def seconds: . / 1e9 | round;
def grouped: group_by(.why) | map({why: .[0].why, number: length}) | sort_by(-.number)[] | "  \(.number)\t\(.why)";

.[0] as $run
| [$run.SpecReports[] | select(.LeafNodeType == "It" and (name | startswith("External Storage")))] as $specs
# The suite says why it skips a test; those that were not selected have no reason.
| ($specs | map(select(.State == "skipped" and (.Failure.Message // "") != ""))) as $skipped
| ($specs | map(select(.State == "skipped" and (.Failure.Message // "") == ""))) as $unselected
| ($unselected | map(name as $name | {why: ([$excluded[] | select(.pattern as $p | $name | test($p)) | .why][0])})) as $left
| ($specs | map(select(.State == "passed"))) as $passed
| ($specs | map(select(.State != "passed" and .State != "skipped"))) as $failed
| ($left | map(select(.why != null))) as $never
| "passed   \($passed | length)",
  "failed   \($failed | length)",
  "skipped  \($skipped | length)",
  "excluded \($never | length)",
  "not selected \($left | length - ($never | length))",
  "seconds  \($run.RunTime | seconds)",
  (if ($failed | length) > 0 then "", "Failed:", ($failed[] | "  \(.State): \(short) (\(.RunTime | seconds) s)\n      \(.Failure.Message | split("\n")[0:6] | join("\n      "))") else empty end),
  (if ($skipped | length) > 0 then "", "Skipped, as the suite puts it:", ($skipped | map({why: .Failure.Message}) | grouped) else empty end),
  (if ($never | length) > 0 then "", "Excluded (hack/storage-suite.d/excluded):", ($never | grouped) else empty end),
  "", "Passed, by part of the suite:",
  ($passed | group_by(part)[] | "  \(length)\t\(.[0] | part)\t\(map(.RunTime) | add | seconds) s"),
  "", "Slowest:", ($passed | sort_by(-.RunTime)[0:5][] | "  \(.RunTime | seconds) s\t\(short)")
