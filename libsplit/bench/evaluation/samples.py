# SPDX-License-Identifier: Apache-2.0
"""What has been measured: a line of JSON a sample, kept as it comes, so that a run which was interrupted goes on where
it ended.

The first line says what the samples are of; a file of something else is not gone on with.
"""

import json


class Samples:
    def __init__(self, path, of=None):
        """of: None goes on with whatever is there."""
        self.path, self.of, self.lines = path, of, []
        self.resumed = self._read()
        if not self.resumed:
            self.path.write_text(json.dumps(of) + "\n", encoding="utf-8")

    def _read(self):
        if not self.path.exists():
            return False
        lines = self.path.read_text(encoding="utf-8").split("\n")
        whole = lines[:-1]  # a line without its end was being written
        first = json.loads(whole[0]) if whole else None
        if first is None or self.of not in (None, first):
            return False
        self.of = first
        self.lines = [json.loads(line) for line in whole[1:]]
        if lines[-1]:
            self.path.write_text("\n".join(whole) + "\n", encoding="utf-8")
        return True

    def read_again(self):
        """Another process has added to the file."""
        self.resumed = self._read()

    def add(self, ground, row, turn, mode, sample):
        line = {"ground": ground, "row": row, "round": turn, "mode": mode, **sample}
        self.lines.append(line)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def has(self, ground, row, turn, modes):
        """Whether that round is there in all its modes. One that is not whole is taken again: its modes take turns."""
        there = {
            line["mode"] for line in self.lines if (line["ground"], line["row"], line["round"]) == (ground, row, turn)
        }
        return there >= set(modes)

    def rounds(self, ground, row):
        """{round: {mode: sample}}; of a round that was taken twice, the later one."""
        found = {}
        for line in self.lines:
            if (line["ground"], line["row"]) == (ground, row):
                found.setdefault(line["round"], {})[line["mode"]] = line
        return found
