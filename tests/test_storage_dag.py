"""Results in object storage: the tiny graph with nothing shared but a bucket of a server on this machine."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pytest
from tiny_project import ROOT, Project, jobs

from tandem.config.merging import gathered
from tandem.extras.plan import FullPlan

boto3 = pytest.importorskip("boto3", reason="boto3, which reads the bucket, is not installed")
pytest.importorskip(
    "snakemake_storage_plugin_s3", reason="snakemake-storage-plugin-s3 is not installed"
)
server = pytest.importorskip(
    "moto.server", reason="moto[server,s3], a server of object storage, is not installed"
)
requests = pytest.importorskip("requests")

PREFIX = "s3://tandem/tiny"
KEYS = {"access_key": "someone", "secret_key": "a secret"}
NAMES = {"aws_access_key_id": KEYS["access_key"], "aws_secret_access_key": KEYS["secret_key"]}


@pytest.fixture(scope="module")
def url():
    """A server of object storage."""
    threaded = server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    threaded.start()
    yield "http://{}:{}".format(*threaded.get_host_and_port())
    threaded.stop()


@pytest.fixture(scope="module")
def bucket(url):
    """A bucket on it."""
    made = boto3.resource("s3", endpoint_url=url, region_name="us-east-1", **NAMES).Bucket("tandem")
    made.create()
    return made


class Machine:
    """A project in a folder of its own, whose results are in a bucket."""

    def __init__(self, folder, url, written):
        self.project = Project.at(folder)
        folder.mkdir(parents=True)
        # the collection stays where it is: all machines have it
        for name in ("config.yaml", "tiny.yaml"):
            shutil.copy(written.folder / name, folder / name)
        self.environment = os.environ | {
            f"SNAKEMAKE_STORAGE_S3_{name.upper()}": value for name, value in KEYS.items()
        }
        self.environment["SNAKEMAKE_STORAGE_S3_ENDPOINT_URL"] = url

    def line(self, *words, prefix=PREFIX):
        flags = ["--default-storage-provider", "s3", "--storage-s3-retries", "1"]
        return self.project.line(
            *words, *flags, *(["--default-storage-prefix", prefix] if prefix else [])
        )

    def run(self, *words, prefix=PREFIX, **environment):
        """Status and output."""
        done = subprocess.run(
            self.line(*words, prefix=prefix), cwd=self.project.folder, env=self.environment | environment,
            capture_output=True, text=True,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    def start(self, *words, folder="tiny", **environment):
        """`tandem run` as it is typed, its output in one pipe."""
        flags = [
            "--default-storage-provider",
            "s3",
            "--default-storage-prefix",
            f"s3://tandem/{folder}",
        ]
        line = [
            sys.executable,
            "-m",
            "tandem",
            "run",
            "config.yaml",
            *words,
            "--",
            *flags,
            "--storage-s3-retries",
            "1",
        ]
        return subprocess.Popen(
            line, cwd=self.project.folder, env=self.environment | environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def read(self, name):
        return (self.project.folder / name).read_bytes()


@pytest.fixture(scope="module")
def written(tmp_path_factory, encoder_folder, documents):
    """The tiny project, of which nothing is made."""
    return Project(tmp_path_factory.mktemp("written"), encoder_folder, documents)


@pytest.fixture
def machine(tmp_path, url, written):
    """`machine(name)`: a machine whose folder nothing else sees."""
    return lambda name: Machine(tmp_path / name, url, written)


def archives(bucket):
    """Key of each artifact that the bucket has → its object's name."""
    return {
        Path(item.key).stem: item.key for item in bucket.objects.all() if item.key.endswith(".tar")
    }


def test_two_machines_share_nothing_but_a_bucket(machine, bucket, tiny_dag):
    """One is killed in the middle, the other goes on from what it has stored; then the first one has all of it, too."""
    first, second = machine("first"), machine("second")
    process = subprocess.Popen(
        first.line(), cwd=first.project.folder, env=first.environment, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    while not any("/model/" in name for name in archives(bucket).values()):
        assert process.poll() is None
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    stored = set(archives(bucket))

    code, output = second.run()
    assert code == 0, output
    computed = {path.parent.name for path in second.project.folder.glob("results/*/*/*/log.txt")}
    assert computed
    assert not computed & stored
    assert {path.parent.name for path in tiny_dag.folder.glob("results/*/*/*/stage.json")} == set(
        archives(bucket)
    )
    table = "results/tables/tiny.csv"
    assert second.read(table) == (tiny_dag.folder / table).read_bytes()  # as without storage
    for view in (table, "results/report.html"):
        assert bucket.Object(f"tiny/{view}").get()["Body"].read() == second.read(view)
    code, output = second.run("-n")
    assert (code, "Nothing to be done" in output) == (0, True), output

    first.run("--unlock")  # as without storage
    assert jobs(first.run("-n")[1]) == {"all": 1, "report": 1, "stored_view": 2, "table": 1}
    code, output = first.run()
    assert code == 0, output
    assert first.read(table) == second.read(table)


def test_two_machines_begin_at_once(machine, bucket):
    """Both make what neither has stored; the bytes are the same, whoever stores last."""
    machines = [machine(name) for name in ("first", "second")]
    runs = [it.start("baseline", folder="race") for it in machines]
    for run in runs:
        output, _ = run.communicate()
        assert run.returncode == 0, output
    table = "results/tables/baseline.csv"
    assert machines[0].read(table) == machines[1].read(table)
    assert bucket.Object(f"race/{table}").get()["Body"].read() == machines[0].read(table)


def test_what_another_machine_stores_meanwhile_stays(machine, bucket):
    """What is due Snakemake decides at its start: outputs that are there later it deletes before the job."""
    pod = machine("m")
    plan = FullPlan(gathered([pod.project.folder / "config.yaml"], ROOT), ROOT)
    folder = Path(plan.planner.run("bm25", "test", "a test").folder)
    archive = bucket.Object(f"meanwhile/{folder}.tar")
    run = pod.start("baseline", folder="meanwhile")
    while not list(pod.project.folder.glob("results/tiny/dataset/*/log.txt")):
        assert run.poll() is None
        time.sleep(0.05)
    (pod.project.folder / folder).mkdir(parents=True)
    (pod.project.folder / folder / "stage.json").write_text("{")  # so that the job fails
    archive.put(Body=b"stored by another machine")
    output, _ = run.communicate()
    assert run.returncode == 1
    assert f"{folder}/stage.json" in output.strip().splitlines()[-1], output
    assert archive.get()["Body"].read() == b"stored by another machine"

    # the plugin deletes a bucket with its last object
    bucket.Object("another/project").put(Body=b"")
    code, output = pod.run("--delete-all-output", prefix="s3://tandem/meanwhile")
    assert code == 0, output
    assert list(bucket.objects.filter(Prefix="meanwhile")) == []


READ_ONLY = {"Effect": "Allow", "Action": ["s3:Get*", "s3:List*", "s3:HeadBucket"], "Resource": "*"}


@pytest.fixture
def reader(url, bucket):
    """The credentials of somebody who may read but not write, at which the server looks."""
    iam = boto3.client("iam", endpoint_url=url, region_name="us-east-1", **NAMES)
    policy = json.dumps({"Version": "2012-10-17", "Statement": [READ_ONLY]})
    iam.create_user(UserName="reader")
    iam.put_user_policy(UserName="reader", PolicyName="read", PolicyDocument=policy)
    key = iam.create_access_key(UserName="reader")["AccessKey"]
    requests.post(f"{url}/moto-api/reset-auth", data=b"0")
    try:
        yield {
            "SNAKEMAKE_STORAGE_S3_ACCESS_KEY": key["AccessKeyId"],
            "SNAKEMAKE_STORAGE_S3_SECRET_KEY": key["SecretAccessKey"],
        }
    finally:
        requests.post(f"{url}/moto-api/reset-auth", data=b"inf")


def test_a_bucket_that_may_be_read_but_not_written(machine, reader, url):
    """Only the first object shows it; what was made stays on this machine, and the next run stores it."""
    pod = machine("m")
    run = pod.start("baseline", folder="read-only", **reader)
    output, _ = run.communicate()
    assert run.returncode == 1
    assert "Traceback" not in output
    line = output.strip().splitlines()[-1]
    assert line.startswith("tandem run: s3://tandem/read-only/results/tiny/dataset/")
    assert "(AccessDenied)" in line

    (manifest,) = pod.project.folder.glob("results/tiny/dataset/*/stage.json")
    made = manifest.stat().st_mtime_ns
    requests.post(f"{url}/moto-api/reset-auth", data=b"inf")
    run = pod.start("baseline", folder="read-only")
    output, _ = run.communicate()
    assert run.returncode == 0, output
    assert manifest.stat().st_mtime_ns == made


def test_a_server_that_goes_away_meanwhile(machine):
    pod = machine("m")
    second = server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    second.start()
    url = "http://{}:{}".format(*second.get_host_and_port())
    boto3.resource("s3", endpoint_url=url, region_name="us-east-1", **NAMES).Bucket(
        "tandem"
    ).create()
    run = pod.start("baseline", folder="away", SNAKEMAKE_STORAGE_S3_ENDPOINT_URL=url)
    while not list(pod.project.folder.glob("results/tiny/dataset/*/stage.json")):
        assert run.poll() is None
        time.sleep(0.05)
    second.stop()
    output, _ = run.communicate()
    assert run.returncode == 1
    assert "Traceback" not in output
    line = output.strip().splitlines()[-1]
    assert line.startswith("tandem run: s3://tandem/away/results/tiny/")
    assert "Could not connect to the endpoint" in line


def last_line(machine, *words, **options):
    """The last line of a run that must fail and begin nothing."""
    code, output = machine.run(*words, **options)
    assert code == 1
    assert not (machine.project.folder / "results").exists()
    assert "Traceback" not in output
    return output.strip().splitlines()[-1]


def test_a_bucket_that_does_not_exist(machine):
    assert "s3://tandme/tiny: there is no such bucket" in last_line(
        machine("m"), prefix="s3://tandme/tiny"
    )


def test_wrong_credentials(machine, bucket, url):
    requests.post(f"{url}/moto-api/reset-auth", data=b"0")  # from now on the server looks at them
    try:
        line = last_line(machine("m"), SNAKEMAKE_STORAGE_S3_SECRET_KEY="another")
    finally:
        requests.post(f"{url}/moto-api/reset-auth", data=b"inf")
    assert "s3://tandem/tiny, which cannot be read: " in line
    assert "credentials" in line


def test_a_server_that_does_not_answer(machine, bucket):
    line = last_line(machine("m"), SNAKEMAKE_STORAGE_S3_ENDPOINT_URL="http://127.0.0.1:9")
    assert "127.0.0.1:9" in line
    assert "s3://tandem/tiny, which cannot be read: " in line


@pytest.mark.parametrize("prefix", [None, "tandem/tiny"])
def test_a_prefix_that_names_no_bucket(prefix, machine):
    assert "--default-storage-prefix" in last_line(machine("m"), prefix=prefix)


def test_what_needs_a_folder_that_jobs_share(machine, bucket):
    line = last_line(machine("m"), "--config", "execution={shards: 2}")
    assert line.startswith("execution.shards is 2, but results are in object storage")


class KubernetesStandIn(BaseHTTPRequestHandler):
    """So much of Kubernetes' interface that a job can be handed in; every job fails."""

    handed_in: ClassVar[list] = []

    def answer(self, value, status=200):
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.handed_in.append((self.path.rpartition("/")[2], body))
        self.answer(body, 201)

    def do_GET(self):
        is_job = "/jobs/" in self.path
        self.answer(
            {"metadata": {}, "status": {"failed": 1}} if is_job else {"metadata": {}, "items": []}
        )

    def do_DELETE(self):
        self.answer({"status": "Success"})

    def log_message(self, *words):
        pass


@contextmanager
def kubernetes(folder):
    """The stand-in, as a configuration file names it; what is handed in to it."""
    api = ThreadingHTTPServer(("127.0.0.1", 0), KubernetesStandIn)
    Thread(target=api.serve_forever, daemon=True).start()
    config = {"apiVersion": "v1", "kind": "Config", "current-context": "here"}
    config["clusters"] = [
        {"name": "here", "cluster": {"server": f"http://127.0.0.1:{api.server_port}"}}
    ]
    config["users"] = [{"name": "me", "user": {"token": "none"}}]
    config["contexts"] = [{"name": "here", "context": {"cluster": "here", "user": "me"}}]
    (folder / "kubeconfig").write_text(json.dumps(config))
    try:
        yield KubernetesStandIn.handed_in
    finally:
        api.shutdown()


def test_kubernetes_is_handed_valid_jobs_without_secrets(machine, bucket, tmp_path):
    """No cluster is here: what Snakemake's plugin sends is held against Kubernetes' own schema."""
    pytest.importorskip(
        "snakemake_executor_plugin_kubernetes", reason="the plugin for Kubernetes is not installed"
    )
    validator = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed"
    )
    pod = machine("pod")
    words = ["--executor", "kubernetes", "--jobs", "1", "--container-image", "tandem"]
    # the plugin wants to know it, for no GPU, too
    words += ["--default-resources", "gpu_manufacturer='nvidia'"]
    line = [
        word
        for word in pod.line("baseline", *words, prefix="s3://tandem/pods")
        if word not in ("--cores", "2")
    ]
    with kubernetes(tmp_path) as handed_in:
        environment = pod.environment | {"KUBECONFIG": str(tmp_path / "kubeconfig")}
        done = subprocess.run(
            line, cwd=pod.project.folder, env=environment, capture_output=True, text=True
        )
    assert done.returncode == 1  # the stand-in runs nothing
    sent = dict(handed_in)
    assert set(sent) == {"secrets", "jobs"}, done.stdout + done.stderr
    job = {"apiVersion": "batch/v1", "kind": "Job"} | sent["jobs"]
    validator.validate(job, validator.latest_version(), strict=True)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "tandem"
    assert "--default-storage-provider 's3'" in container["args"][1]
    assert "SNAKEMAKE_STORAGE_S3_SECRET_KEY" in {variable["name"] for variable in container["env"]}
    assert KEYS["secret_key"] not in json.dumps(job)
