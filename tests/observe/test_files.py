"""A file is there whole or not at all."""

import pytest

from stapo_trl.observe.files import replace_atomically, write_atomically


def test_a_write_that_fails_leaves_the_former_file(tmp_path):
    write_atomically(tmp_path / "a", "é\n")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(tmp_path / "a", "b\ud800")
    with pytest.raises(RuntimeError), replace_atomically(tmp_path / "a") as unfinished:
        unfinished.write_text("half")
        raise RuntimeError
    assert (tmp_path / "a").read_bytes() == "é\n".encode()
