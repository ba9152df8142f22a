from pathlib import Path

import pytest

from recipe.records.digests import BLOCK, model_digest, weights_digest


@pytest.mark.slow
def test_the_digest_of_large_weights_reads_blocks_from_their_beginning_to_their_end(tmp_path: Path):
    assert weights_digest(tmp_path) == ""
    file = tmp_path / "model.safetensors"
    size = 200 * BLOCK
    digests = set()
    for place in (None, 0, size - 1):
        file.write_bytes(b"")
        with file.open("r+b") as written:
            written.truncate(size)
            if place is not None:
                written.seek(place)
                written.write(b"x")
        digests.add(weights_digest(tmp_path))
    assert len(digests) == 3


def test_another_template_of_the_same_weights_is_another_model(tmp_path: Path):
    (tmp_path / "model.safetensors").write_text("w")
    plain = model_digest(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
    assert model_digest(tmp_path) != plain
    (tmp_path / "notes.md").write_text("no part of the model")
    (tmp_path / "chat_template.jinja").unlink()
    assert model_digest(tmp_path) == plain
