"""Run the pipeline of this folder: `python examples/pipelines/run.py DIRECTORY`.

Spark wants an absolute path for what a pipeline remembers, so the project is copied to DIRECTORY
and its path filled in. Run it again with the same DIRECTORY, and it reads only what is new.

Two things are set that `spark-pipelines` would not find by itself: a Java, also on a machine that
has none, and the Hive catalog, without which a second run fails because its tables exist already.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark

from topics.spark.setup.session import prepare

PROJECT = Path(__file__).resolve().parent
SPEC = "spark-pipeline.yml"


def main(directory: Path) -> int:
    copy_project(directory)
    prepare("local[*]", {})
    command = Path(pyspark.__file__).parent / "bin" / "spark-pipelines"
    settings = {
        "spark.sql.catalogImplementation": "hive",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    conf = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    # Tables, the catalog and its log are made where it runs.
    ended = subprocess.run(
        [str(command), *conf, "run", "--spec", SPEC], cwd=directory, env=os.environ, check=False
    )
    return ended.returncode


def copy_project(directory: Path) -> None:
    """Make DIRECTORY a project with a storage of its own; what is there already stays."""
    storage = directory.resolve() / "pipeline-storage"
    storage.mkdir(parents=True, exist_ok=True)
    shutil.copytree(PROJECT / "transformations", directory / "transformations", dirs_exist_ok=True)
    text = (PROJECT / SPEC).read_text().replace("STORAGE", f"file://{storage}")
    (directory / SPEC).write_text(text)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} DIRECTORY")
    sys.exit(main(Path(sys.argv[1])))
