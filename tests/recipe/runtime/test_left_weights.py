"""What a killed transfer of weights left is removed, but nothing that a living process uses."""

import mmap
import socket
import tempfile
from pathlib import Path

import pytest

from recipe.runtime.left_weights import remove_left_weights, unused

pytestmark = pytest.mark.slow


def test_what_no_process_maps_or_listens_at_is_removed(tmp_path: Path):
    mapped, left, other = (tmp_path / name for name in ("verl_a", "verl_b", "other"))
    for path in (mapped, left, other):
        path.write_bytes(b"0" * mmap.PAGESIZE)
    with mapped.open("r+b") as file, mmap.mmap(file.fileno(), 0):
        assert unused([str(mapped), str(left)]) == [str(left)]
        remove_left_weights([f"{tmp_path}/verl_*"], seconds=0.0)
        assert (mapped.exists(), left.exists(), other.exists()) == (True, False, True)
    remove_left_weights([f"{tmp_path}/verl_*"])
    assert not mapped.exists()


def test_a_socket_at_which_a_process_listens_stays():
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{folder}/zmq-a")
        server.listen()
        remove_left_weights([f"{folder}/zmq-*"], seconds=0.0)
        assert Path(folder, "zmq-a").exists()
        server.close()
        remove_left_weights([f"{folder}/zmq-*"])
        assert not Path(folder, "zmq-a").exists()
