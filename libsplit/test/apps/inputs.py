# SPDX-License-Identifier: Apache-2.0
"""What the scripts work on: files of known content, programs built from programs/, and an environment in which they are deterministic."""

import os
import random
import shutil
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
BINARY_BYTES = 1_234_567

# (name, source, command): programs that aren't in packages. What can't be built on this machine is a program that is missing.
BUILD = (
    ("behind_our_back", "programs/behind_our_back.c", ["gcc", "-O1", "-D_GNU_SOURCE"]),
    ("files-static", "programs/files.c", ["gcc", "-O1", "-D_GNU_SOURCE", "-static"]),
    ("files-musl", "programs/files.c", ["musl-gcc", "-O1", "-D_GNU_SOURCE"]),
    ("files-go", "programs/go/files.go", ["go", "build"]),
)
WRITERS = (
    ("append-static", "writers/append.c", ["gcc", "-O1", "-D_GNU_SOURCE", "-static"]),
    ("append-musl", "writers/append.c", ["musl-gcc", "-O1", "-D_GNU_SOURCE"]),
    ("append-go", "writers/go/append.go", ["go", "build"]),
    ("append-java", "writers/Append.java", ["javac", "-d"]),
)


def environment(path, inputs, home):
    """HOME and TMPDIR are in the volume, so that temporary files are, too."""
    env = {"PATH": path, "IN": inputs, "HOME": home, "TMPDIR": f"{home}/tmp", "LC_ALL": "C", "TZ": "UTC"}
    env.update(SOURCE_DATE_EPOCH="1700000000", PYTHONDONTWRITEBYTECODE="1", TERM="dumb", PYTHONHASHSEED="0")
    for who in ("AUTHOR", "COMMITTER"):
        env.update({f"GIT_{who}_NAME": "A", f"GIT_{who}_EMAIL": "a@example.org", f"GIT_{who}_DATE": "1700000000 +0000"})
    env.update(GIT_CONFIG_NOSYSTEM="1", GIT_CONFIG_GLOBAL="/dev/null")
    return env


def go():
    for name in (os.environ.get("GO"), shutil.which("go"), "/usr/local/go/bin/go"):
        if name and os.path.exists(name):
            return name
    return None


def prepare(directory):
    """Make the files. Returns the names of the programs that could be built."""
    rnd = random.Random(20261121)
    with open(f"{directory}/words", "w") as f:
        for i in range(8000):
            f.write(f"{rnd.randrange(10**8):08d} {i % 97} {rnd.choice(('alpha', 'beta', 'gamma', 'delta'))} line {i}\n")
    with open(f"{directory}/binary", "wb") as f:
        f.write(rnd.randbytes(BINARY_BYTES))
    with open(f"{directory}/numbers.json", "w") as f:
        f.write("[" + ",\n".join(f'{{"id": {i}, "value": {rnd.random():.6f}}}' for i in range(2000)) + "]\n")
    return build(directory, BUILD)


def build(directory, programs):
    """Those whose compiler is there. Returns their names."""
    built = set()
    for name, source, command in programs:
        tool = go() if command[0] == "go" else shutil.which(command[0])
        if not tool:
            continue
        out = [f"{directory}/{name}"] if command[-1] == "-d" else ["-o", f"{directory}/{name}"]
        env = dict(os.environ, CGO_ENABLED="0", GO111MODULE="off", GOFLAGS="")
        subprocess.run([tool, *command[1:], *out, f"{HERE}/{source}"], check=True, env=env)
        built.add(name)
    return built
