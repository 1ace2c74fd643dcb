"""Several machines with a slurm: commands on them, their cables and plugs, and Snakemake on the controller."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path

from slurm_kit import SLOW, Slurm, until

SCRIPT = Path(__file__).parent / "machines.sh"
NODES = ("node1", "node2", "node3")


class Machines:
    """A controller, `ctl`, and the nodes.

    Args:
        lab: the folder of their state and logs.
        shared: the folder that all of them see.
        path: where their programs are.
    """

    def __init__(self, lab, shared, path):
        self.lab = lab
        self.environment = {
            **os.environ,
            "SLURM_LAB": str(lab),
            "LAB_SHARED": str(shared),
            "PATH": path,
        }

    def ask(self, *words, **settings):
        """Run the script, with further settings of it; it must succeed."""
        done = self.call(*words, **settings)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def call(self, *words, **settings):
        """Run the script as `ask` does, whatever its status; returns the ended process."""
        environment = {**self.environment, **settings}
        return subprocess.run([SCRIPT, *words], env=environment, capture_output=True, text=True)

    def bring_up(self):
        """Start all machines; what went wrong, in a line, or an empty text."""
        done = self.call("up")
        return "".join(done.stderr.splitlines()[-1:]) if done.returncode else ""

    def on_ctl(self, line):
        """A command line that runs another one on the controller."""
        return [str(SCRIPT), "run", "ctl", *line]

    def lines(self, *words):
        """The lines that a command prints on the controller."""
        return self.ask("run", "ctl", *words).splitlines()

    def queue(self):
        """Number, state and nodes of each job in the queue."""
        return [line.split("|") for line in self.lines("squeue", "-h", "-o", "%i|%T|%N")]

    def nodes_by_job(self):
        """Number of each job of the last quarter of an hour → its nodes, as slurm shortens their names."""
        lines = self.lines("squeue", "-h", "-t", "all", "-o", "%i %N")
        return dict(line.split() for line in lines if " " in line.strip())

    def nodes_of_jobs(self):
        """The nodes on which jobs have run; names of several nodes stand as slurm shortens them."""
        return set(self.lines("squeue", "-h", "-t", "all", "-o", "%N")) - {""}

    def states(self):
        """State of each node, without the mark of one that does not answer."""
        pairs = [line.split() for line in self.lines("sinfo", "-h", "-N", "-o", "%N %T")]
        return {name: state.rstrip("*") for name, state in pairs}

    def processes(self, pattern):
        """Node and process id of each Python on a node whose command line matches; the id is the host's."""
        listing = subprocess.run(
            ["pgrep", "-f", pattern], capture_output=True, text=True
        ).stdout.split()
        nodes = {self.namespace((self.lab / name / "pid").read_text()): name for name in NODES}
        pythons = []
        for pid in listing:
            with suppress(OSError):  # it has ended meanwhile
                if (
                    Path(os.readlink(f"/proc/{pid}/exe")).name.startswith("python")
                    and self.namespace(pid) in nodes
                ):
                    pythons.append((nodes[self.namespace(pid)], int(pid)))
        return pythons

    def namespace(self, pid):
        """What a process' machine is told apart by."""
        return os.readlink(f"/proc/{pid}/ns/pid")

    def restart(self, name, **settings):
        """Switch a machine off and on, with settings of the script, and wait until all nodes are idle."""
        self.ask("off", name)
        self.ask("on", name, **settings)
        self.wait_until_idle()

    def wait_until_idle(self):
        """Wait until every node answers and has nothing to do."""
        until(lambda: self.call("run", "ctl", "sinfo").returncode == 0)
        until(lambda: self.states() == dict.fromkeys(NODES, "idle"))

    def clear(self):
        """Cancel all jobs, and plug every machine in."""
        for name in ("ctl", *NODES):
            self.ask("on", name)
            self.ask("heal", name)
        until(lambda: self.call("run", "ctl", "scancel", "--user", "root").returncode == 0)
        self.wait_until_idle()


class Spread(Slurm):
    """A copy of a finished tiny project, to be run by a Snakemake on the controller."""

    def __init__(self, machines, *arguments, **options):
        self.machines = machines
        super().__init__(*arguments, **options)

    def slurm(self, *words, **options):
        """The command line of `Slurm.slurm`, on the controller."""
        return self.machines.on_ctl(super().slurm(*words, **options))

    def start(self, *words, **options):
        """Start Snakemake; returns the process, which with those that it starts is a group of its own."""
        pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        line = self.slurm(*words, **options)
        return subprocess.Popen(line, env=self.machines.environment, start_new_session=True, **pipe)

    def run_there(self, *words, code=0, limit=4 * SLOW, **options):
        """Run Snakemake to its end in so many seconds, which must have that status; returns its output."""
        output, status = self.ended(self.start(*words, **options), limit)
        assert status == code, output
        return output

    def ended(self, process, limit=4 * SLOW):
        """Output and status of a Snakemake that is waited for, so many seconds at most."""
        output, _ = process.communicate(timeout=limit)
        return output, process.returncode
