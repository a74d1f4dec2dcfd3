"""Secrets appear nowhere, nothing listens beyond this machine, and foreign text does nothing."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys

import psutil
import pytest

from evertable.cli.main import main
from evertable.cli.terminal import clean
from evertable.sinks import kafka_transactions
from evertable.spark.secrets import redact

CANARY = "canary-9f3b7c21"


def everything_under(folder):
    for path in folder.rglob("*"):
        if path.is_file():
            yield path, path.read_bytes()


PIPELINE = """
name: p
spark: {master: "local[2]"}
streams:
  s: {format: text, path: in, unchecked_options: {apiKey: "${secret:CANARY}"}}
  file_secret:
    format: socket
    options: {host: "${secret:CANARY}.invalid", port: 1}
tables:
  good: {query: SELECT value FROM s, trigger: available_now}
  sent:
    query: SELECT value FROM s
    trigger: available_now
    sink: {format: python, call: "mine.py:send", unchecked_options: {token: "${secret:CANARY}"}}
  bad: {query: SELECT value FROM file_secret}
"""


@pytest.mark.long
def test_a_canary_secret_is_in_no_file_log_or_output(tmp_path):
    (tmp_path / "p.yaml").write_text(PIPELINE)
    (tmp_path / "mine.py").write_text("def send(batch, n):\n    batch.collect()\n")
    (tmp_path / "in").mkdir()
    (tmp_path / "in/1").write_text("hello\n")
    said = ""
    for arguments in (
        ["check"],
        ["check", "--json"],
        ["run"],
        ["run", "--json"],
        ["run", "--only", "good,sent"],
        ["doctor", "--json"],
        ["preview", "s"],
        ["query", "SELECT * FROM good"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "evertable", *arguments],
            cwd=tmp_path,
            text=True,
            capture_output=True,
            env={**os.environ, "CANARY": CANARY},
            timeout=120,
        )
        said += done.stdout + done.stderr
        assert "Traceback" not in done.stderr
    assert "${secret:CANARY}" in said  # Spark did repeat it, and we did say which one it is
    assert CANARY not in said
    files = list(everything_under(tmp_path))
    assert any("logs" in str(path) for path, _ in files)
    assert [path for path, content in files if CANARY.encode() in content] == []


LOGIN = """kafka.bootstrap.servers: "127.0.0.1:1", kafka.security.protocol: SASL_PLAINTEXT,
  kafka.sasl.mechanism: PLAIN,
  kafka.sasl.jaas.config: 'org.apache.kafka.common.security.plain.PlainLoginModule required
    username="me" password="${secret:CANARY}";'"""
UNFINISHED = LOGIN.replace(";'", "'").replace(":1", ":PORT")
KAFKA = f"""
name: p
spark: {{master: "local[2]", spark.sql.shuffle.partitions: 2}}
streams:
  s: {{format: text, path: in}}
  k: {{format: kafka, options: {{subscribe: a, {LOGIN}}}}}
  unfinished:
    format: kafka
    options: {{subscribe: a, {UNFINISHED}}}
tables:
  read: {{query: SELECT value FROM k}}
  refused: {{query: SELECT value FROM unfinished}}
  written: {{query: SELECT value FROM s, sink: {{format: kafka, topic: a, {LOGIN}}}}}
  so_is: {{query: SELECT value FROM s, sink: {{format: kafka, topic: a, {UNFINISHED}}}}}
  once:
    query: SELECT value FROM s
    sink: {{format: kafka, delivery: exactly_once, topic: a, {LOGIN}}}
"""


def test_a_password_for_kafka_is_in_no_file_log_or_output(
    kit, capfd, monkeypatch, tmp_path_factory
):
    monkeypatch.setenv("CANARY", CANARY)
    monkeypatch.setattr(kafka_transactions, "_PATIENCE", 1.0)
    kit.feed("in", "hello")
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        # Java's client reads the options once somebody listens
        kit.write("p.yaml", KAFKA.replace("PORT", str(nobody.getsockname()[1])))
        assert main(["check", "p.yaml"]) == 1
        assert main(["run", "--json", "p.yaml"]) == 1
    said = "".join(capfd.readouterr())
    assert said.count("_UNREACHABLE p.yaml:") == 6
    assert said.count("OPTION_INVALID p.yaml:") == 4
    assert said.count("detail: JAAS config entry not terminated by semi-colon") == 4
    assert CANARY not in said
    # the JVM is that of all tests, and so is its log
    for folder in (kit.folder, tmp_path_factory.getbasetemp()):
        found = [path for path, text in everything_under(folder) if CANARY.encode() in text]
        assert found == []


def test_secrets_in_parts_and_in_lines(monkeypatch):
    from evertable.spark.secrets import resolve

    monkeypatch.setenv("SHORT", "hunter2x")
    monkeypatch.setenv("LONG", "hunter2x-production")
    monkeypatch.setenv("PEM", "-----BEGIN\nabcdefgh\n-----END")
    resolve({"a": "${secret:SHORT}", "b": "${secret:LONG}", "c": "${secret:PEM}"}, "x", None)
    assert redact("with hunter2x-production") == "with ${secret:LONG}"
    assert "abcdefgh" not in redact("line: abcdefgh")


def test_a_secret_in_a_path_is_not_in_the_finding(tmp_path):
    (tmp_path / "p.yaml").write_text("""
streams:
  s: {format: text, path: "${secret:CANARY}/in"}
tables:
  t: {query: SELECT * FROM s}
""")
    for arguments in (["check"], ["check", "--json"]):
        done = subprocess.run(
            [sys.executable, "-m", "evertable", *arguments],
            cwd=tmp_path,
            text=True,
            capture_output=True,
            env={**os.environ, "CANARY": CANARY},
        )
        assert "PATH_MISSING" in done.stdout
        assert CANARY not in done.stdout + done.stderr


def test_a_missing_secret_is_named_and_never_guessed(kit, monkeypatch):
    from evertable.errors import EvertableError

    monkeypatch.delenv("NO_SUCH", raising=False)
    p = kit.yaml("""
name: p
streams:
  s: {format: socket, options: {host: "${secret:NO_SUCH}", port: 1}}
tables:
  t: {query: SELECT value FROM s}
""")
    with pytest.raises(EvertableError, match=r"SECRET_MISSING.*secret:NO_SUCH") as e:
        kit.run(p)
    assert e.value.exit_code == 2


def test_a_secret_from_a_file(tmp_path):
    from evertable.spark.secrets import resolve

    (tmp_path / "pw").write_text("from-a-file\n")
    options = {"x": "${secret:file:" + str(tmp_path / "pw") + "}"}
    assert resolve(options, "s", None) == {"x": "from-a-file"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("pg://me:pw@host:5432/db", "pg://***@host:5432/db"),
        ("https://token@host/x", "https://***@host/x"),
        ("password=abc, host=h", "password=***, host=h"),
        ('ssl.key.password: "abc"', 'ssl.key.password: "***"'),
        ("nothing to hide", "nothing to hide"),
    ],
)
def test_user_info_and_passwords_are_hidden(text, shown):
    assert redact(text) == shown


def listens(process):
    """Where a process listens; nowhere if it has ended: Hadoop forks one for each file."""
    try:
        connections = process.net_connections(kind="inet")
    except psutil.NoSuchProcess:
        return []
    return [c.laddr for c in connections if c.status == psutil.CONN_LISTEN]


@pytest.mark.long
def test_nothing_listens_beyond_loopback_in_local_mode(tmp_path):
    (tmp_path / "p.yaml").write_text("""
name: p
spark: {master: "local[2]"}
streams:
  s: {format: rate, options: {rowsPerSecond: 5}}
tables:
  t: {query: {python: "udf.py:t"}}
""")
    (tmp_path / "udf.py").write_text(
        "from pyspark.sql import functions as F\n\n"
        "def t(s):\n    return s.select(F.udf(lambda v: v, 'long')('value').alias('v'))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "evertable", "run", "--json"],
        cwd=tmp_path,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "batch" and event["rows_in"]:
                break  # the Python workers are up as well
        tree = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        listening = [address for one in tree for address in listens(one)]
        assert any("java" in one.name() for one in tree)
        assert listening, "Spark's own ports at least"
        assert {address.ip.removeprefix("::ffff:") for address in listening} <= {"127.0.0.1", "::1"}
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.long
def test_ctrl_c_in_a_terminal_does_not_kill_python_workers(tmp_path):
    """A terminal sends SIGINT to every process of the group: the running batch must survive it."""
    (tmp_path / "p.yaml").write_text("""
name: p
spark: {master: "local[2]"}
streams:
  s: {format: rate, options: {rowsPerSecond: 50}}
tables:
  t: {query: {python: "udf.py:t"}}
""")
    (tmp_path / "udf.py").write_text(
        "import time\nfrom pyspark.sql import functions as F\n\n"
        "def slow(v):\n    time.sleep(0.02)\n    return v\n\n"
        "def t(s):\n    return s.select(F.udf(slow, 'long')('value').alias('v'))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "evertable", "run", "--json"],
        cwd=tmp_path,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    batches = 0
    for line in process.stdout:
        event = json.loads(line)
        batches += event["event"] == "batch"
        if batches == 2:
            break
    os.killpg(process.pid, signal.SIGINT)
    rest = [json.loads(line) for line in process.stdout]
    assert process.wait() == 0, process.stderr.read()
    assert [e["event"] for e in rest][-2:] == ["stopped", "delivered"]
    assert not [e for e in rest if e["event"] == "failed"]


@pytest.mark.parametrize("text", ["\x1b[2J", "\x9b31m", "a\rb", "\u202eevil", "\x07"])
def test_control_characters_are_never_printed_raw(text):
    assert not set(clean(text)) & set("\x1b\x9b\r\u202e\x07")
