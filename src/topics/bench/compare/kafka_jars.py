"""Fetches Kafka's server with Maven, for `topics bench compare`.

    python -m topics.bench.compare.kafka_jars

The jars go to `~/.cache/topics/kafka`, or to the directory that `TOPICS_KAFKA_JARS` names.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ARTEFACT = ("org.apache.kafka", "kafka_2.13", "4.1.0")

_POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>topics</groupId><artifactId>bench</artifactId><version>1</version><packaging>pom</packaging>
<dependencies><dependency>
<groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
</dependency></dependencies></project>
"""


def directory() -> Path:
    """Where the jars are, or will be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("TOPICS_KAFKA_JARS") or cache / "topics" / "kafka")


def main() -> int:
    """Fetch the jars; 1 if Maven is missing or fails."""
    maven = shutil.which("mvn")
    if maven is None:
        print("kafka_jars: needs Maven (Debian's package maven) on the path", file=sys.stderr)
        return 1
    target = directory()
    with tempfile.TemporaryDirectory() as scratch:
        pom = Path(scratch, "pom.xml")
        pom.write_text(_POM.format(*ARTEFACT))
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
        command = [maven, "-q", "-B", "-f", str(pom), *goal, f"-DoutputDirectory={target}"]
        done = subprocess.run(command, check=False)
    if done.returncode:
        print("kafka_jars: Maven failed, see above", file=sys.stderr)
        return 1
    print(f"{len(list(target.glob('*.jar')))} jars in {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
