# SPDX-License-Identifier: Apache-2.0
"""One run of one row in one mode.

A sample is {"wall_s", "cpu_s", "agent_s", "served", "figures": {name: value}}: time by the clock, CPU time of all its
processes, that of the volume's agent meanwhile, calls that the library served. Of single calls only what is counted is
in wall_s and cpu_s.
"""

import os
import pathlib
import re
import resource
import shutil
import subprocess
import time

from .ground import PLAIN, agent_seconds, served
from .row import PATH, Calls

LIMIT = 600
POSTGRES = "/usr/lib/postgresql"


class Failure(Exception):
    """Something the user can understand; printed without a traceback."""


def environment(ground, vol, row, tools, ours, n):
    postgres = sorted(pathlib.Path(POSTGRES).glob("*/bin"))[-1:]
    return {
        "PATH": PATH,
        "LC_ALL": "C",
        "TZ": "UTC",
        "N": str(n),
        "INPUT": ground.input,
        "BENCH": str(tools),
        "OURS": str(ours),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "PG": str(postgres[0] if postgres else POSTGRES),
        **vol.environment(vol.root),
        **(dict(row.settings) if vol.mode != PLAIN else {}),
    }


def plain(env):
    return {key: value for key, value in env.items() if key != "LD_PRELOAD" and not key.startswith("SPLITFS_")}


def shell(script, env, directory):
    done = subprocess.run(
        ["/bin/sh", "-ec", script],
        env=env,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode:
        raise Failure(f"exit status {done.returncode}: {(done.stderr + done.stdout).strip()[-300:]}")
    return done.stdout


def children_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def find_figures(row, text):
    if not row.pattern:
        return {}
    found = {m.groupdict().get("key", "figure"): float(m["value"]) for m in re.finditer(row.pattern, text)}
    if not found:
        raise Failure(f"its output has no figure: {text.strip()[-300:]}")
    return found


def run_program(row, n, env, directory):
    if row.before:
        shell(row.before, plain(env), directory)
    cpu, wall = children_seconds(), time.perf_counter()
    text = shell(row.script, env, directory)
    return {"wall_s": time.perf_counter() - wall, "cpu_s": children_seconds() - cpu, "figures": find_figures(row, text)}


def run_calls(row, n, env, directory, worker):
    """The commands go in one piece, so that the worker waits for nobody; its answers come in their order."""
    steps = list(row.steps(n))
    text = "".join(command.format(file=directory / "file") + "\n" for _, command in steps)
    done = subprocess.run([worker], input=text, env=env, capture_output=True, text=True, timeout=LIMIT, check=False)
    answers = done.stdout.splitlines()
    if done.returncode or len(answers) != len(steps) or not all(a.startswith("ok") for a in answers):
        said = answers[-1] if answers else done.stderr.strip()[-300:]
        raise Failure(f"worker: exit status {done.returncode}, last answer '{said}'")
    times = {label: [0, 0] for label, _ in steps if label}
    for (label, _), answer in zip(steps, answers):
        if label:
            _, _, process, wall = answer.split()
            times[label][0] += int(wall)
            times[label][1] += int(process)
    per = row.per(n)
    return {
        "wall_s": sum(w for w, _ in times.values()) / 1e9,
        "cpu_s": sum(c for _, c in times.values()) / 1e9,
        "figures": {label: wall / per[label] for label, (wall, _) in times.items()},
    }


def run(ground, row, mode, n, tools, worker):
    vol, directory = ground.volume(mode, row.agent), ground.directory(mode, row)
    env = environment(ground, vol, row, tools, worker.parent, n)
    try:
        ground.flush()
        agent, before = agent_seconds(vol), served(vol)
        load = os.getloadavg()[0]
        if isinstance(row, Calls):
            sample = run_calls(row, n, env, directory, worker)
        else:
            sample = run_program(row, n, env, directory)
        vol.settle()
        sample.update(agent_s=agent_seconds(vol) - agent, served=served(vol) - before, load=load)
    except subprocess.TimeoutExpired as late:
        raise Failure(f"no end after {late.timeout} s") from late
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return sample
