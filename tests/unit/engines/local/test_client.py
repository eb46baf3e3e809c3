"""The client of a job's supervisors: where each has its directory."""

from pathlib import Path

from beamer.engines.local.client import SupervisorClient
from beamer.engines.local.spec import LocalNode


def test_nodes_whose_names_read_the_same_in_a_path_have_directories_of_their_own(tmp_path: Path) -> None:
    names = ("rack_1", "rack/1", "rack:1")
    directories = [SupervisorClient(LocalNode(name, 1), tmp_path, None).directory for name in names]
    assert directories[0] == tmp_path / "rack_1", "a name that is fit for a path stays as it is"
    assert len(set(directories)) == len(names)
    assert {directory.parent for directory in directories} == {tmp_path}
