"""Jars come exactly as locked, or not at all; a real Ivy reads a repository in a folder."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile

import pytest

from evertable.cli.main import main
from evertable.errors import NotReady
from evertable.project import open_pipeline
from evertable.run.opening import needs
from evertable.spark import connectors
from evertable.spark.connectors import REPOSITORY, Connector, Jar, JarSet
from kit import wait_for


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A mirror in a folder, in Maven's layout, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(REPOSITORY, f"file://{tmp_path}/mirror")

    def publish(artifact: str, content: bytes) -> Jar:
        group, name, version = artifact.split(":")
        folder = tmp_path / "mirror" / group.replace(".", "/") / name / version
        folder.mkdir(parents=True)
        (folder / f"{name}-{version}.jar").write_bytes(content)
        (folder / f"{name}-{version}.pom").write_text(
            f"<project><modelVersion>4.0.0</modelVersion><groupId>{group}</groupId>"
            f"<artifactId>{name}</artifactId><version>{version}</version>"
            "<dependencies><dependency><groupId>not</groupId><artifactId>there</artifactId>"
            "<version>1</version></dependency></dependencies></project>"
        )
        return Jar(artifact, hashlib.sha256(content).hexdigest())

    return publish


def connector(*sets: JarSet) -> Connector:
    return Connector("kafka", "tests", sets)


def test_the_first_set_that_the_repository_has_is_taken_without_its_dependencies(repository):
    here = repository("org.x:b:1.0", b"the fallback")
    absent = Jar("org.x:a:2.0", "0" * 64)
    said: list[str] = []
    wanted = connector(JarSet("best", (absent,)), JarSet("fallback", (here,)))
    files = connectors.get(wanted, said.append)
    assert [f.read_bytes() for f in files] == [b"the fallback"]
    assert len(said) == 1
    assert connectors.get(wanted, said.append) == files
    assert len(said) == 1, "what is here is not fetched again"


def test_a_jar_with_another_digest_is_never_kept(repository):
    jar = Jar(repository("org.x:a:1.0", b"what came").artifact, "0" * 64)
    with pytest.raises(NotReady) as e:
        connectors.get(connector(JarSet("a 1.0", (jar,))))
    assert e.value.findings[0].code == "CONNECTOR_MISSING"
    assert "not the jar that the lock names" in e.value.findings[0].detail
    assert not list(connectors.folder().glob("*")) if connectors.folder().exists() else True


def test_a_jar_that_was_changed_on_the_disk_is_fetched_again(repository):
    jar = repository("org.x:a:1.0", b"right")
    wanted = connector(JarSet("a", (jar,)))
    (file,) = connectors.get(wanted)
    file.write_bytes(b"wrong")
    assert connectors.present(wanted) is None
    assert connectors.get(wanted) == [file]
    assert file.read_bytes() == b"right"


@pytest.mark.parametrize(
    ("mirror", "why"),
    [
        ("file:///not/there", "file:///not/there does not have org.x:a:1.0"),
        ("http://127.0.0.1:9/", "http://127.0.0.1:9/ did not answer"),
        ("http://me:hunter22@127.0.0.1:9/", "http://***@127.0.0.1:9/ did not answer"),
    ],
)
def test_a_connector_that_cannot_be_had_is_one_clear_error(repository, monkeypatch, mirror, why):
    monkeypatch.setenv(REPOSITORY, mirror)
    with pytest.raises(NotReady) as e:
        connectors.get(connector(JarSet("a 1.0", (Jar("org.x:a:1.0", "0" * 64),))), what="it")
    (finding,) = e.value.findings
    assert finding.code == "CONNECTOR_MISSING"
    assert e.value.exit_code == 4
    assert why in finding.detail
    assert "--add" in finding.hint


def test_a_bundle_carries_jars_to_a_machine_without_network(tmp_path, monkeypatch, capsys):
    kafka = connectors.lock()["kafka"]
    connectors.get(kafka)
    assert main(["doctor", "--fetch", "kafka", "--to", str(tmp_path / "jars.zip")]) == 0
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(REPOSITORY, "http://127.0.0.1:9/")
    assert connectors.present(kafka) is None
    assert main(["doctor", "--add", str(tmp_path / "jars.zip")]) == 0
    assert len(connectors.present(kafka) or ()) == 4
    assert "kafka-clients" in capsys.readouterr().err


def test_a_bundle_with_another_jar_under_a_known_name_adds_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    name = connectors.lock()["kafka"].sets[0].jars[0].file
    with zipfile.ZipFile(tmp_path / "jars.zip", "w") as archive:
        archive.writestr(name, b"something else")
        archive.writestr("../../evil.jar", b"never looked at")
    with pytest.raises(NotReady, match=name):
        connectors.add(tmp_path / "jars.zip")
    assert not connectors.folder().exists()
    (tmp_path / "no.zip").write_text("no zip")
    with pytest.raises(NotReady, match="no zip file"):
        connectors.add(tmp_path / "no.zip")


PIPELINE = """
streams:
  s: {format: kafka, options: {kafka.bootstrap.servers: "127.0.0.1:1", subscribe: a}}
tables:
  t: {query: SELECT value FROM s}
"""


def test_a_pipeline_without_its_connector_exits_4_with_the_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(REPOSITORY, "http://127.0.0.1:9/")
    (tmp_path / "p.yaml").write_text(PIPELINE)
    monkeypatch.chdir(tmp_path)
    for verb in ("run", "check"):
        assert main([verb]) == 4
    both = "".join(capsys.readouterr())
    assert 'CONNECTOR_MISSING p.yaml:3: stream "s" needs spark-sql-kafka' in both
    assert main(["doctor"]) == 4
    assert "✗ kafka" in capsys.readouterr().out
    assert [name for name, _, _ in needs(open_pipeline("p.yaml"))] == ["kafka"]


def test_every_jar_of_the_lock_is_exact():
    for entry in connectors.lock().values():
        for one in entry.sets:
            assert len({jar.file for jar in one.jars}) == len(one.jars)
            assert all(len(jar.sha256) == 64 for jar in one.jars)
            assert not any("SNAPSHOT" in jar.artifact or "+" in jar.artifact for jar in one.jars)


def test_the_broker_starts_makes_topics_and_keeps_its_folder(tmp_path):
    def start(*arguments):
        process = subprocess.Popen(
            [sys.executable, "-m", "evertable", "broker", "--data", "data", *arguments],
            cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout
        return process, process.stdout.readline().strip()

    from confluent_kafka.admin import AdminClient

    for topics in (["--topic", "a:3", "--topic", "b"], ["--topic", "a:3"]):
        process, address = start(*topics)
        admin = AdminClient({"bootstrap.servers": address})

        def partitions(admin=admin):
            found = admin.list_topics(timeout=20).topics
            return {name: len(t.partitions) for name, t in found.items()}

        wait_for(lambda ask=partitions: ask() == {"a": 3, "b": 1})
        process.send_signal(2)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 0, errors
        assert "stopped" in errors


def test_a_port_in_use_is_said_so(broker, capsys):
    assert main(["broker", "--port", str(broker.port)]) == 4
    assert f"PORT_IN_USE: something listens on 127.0.0.1:{broker.port}" in capsys.readouterr().err
    assert main(["broker", "--topic", "a:many"]) == 2
