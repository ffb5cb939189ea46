"""Shards of the token log: whole or absent, dropped by a resumed run, and never the end of a training."""

from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from transformers import TrainerState

from stapo_trl.observe.token_log import COMPLETIONS, MAX_COMPLETIONS, TOKENS, TokenLog, read_token_log


def token(step: int, **columns) -> dict:
    return {"step": step, "token": "x", "silenced": True, "candidate": True, "prob": 0.001} | columns


def completion(step: int, silenced: bool = False) -> dict:
    return {"step": step, "tokens": ["a", "b"], "silenced": [False, silenced]}


def begin(log: TokenLog, step: int, is_main: bool = True) -> None:
    log.on_train_begin(None, TrainerState(global_step=step, is_world_process_zero=is_main), None)


def steps(run_dir, name: str = "tokens") -> list[int]:
    return sorted(read_token_log(run_dir, name)["step"].to_pylist())


def test_a_shard_is_written_when_it_is_full_and_the_rest_at_the_end(tmp_path):
    log = TokenLog(tmp_path, max_rows=3, metadata={"prob_threshold": "0.002"})
    for step in range(1, 6):
        log.add([token(step)], [])
    assert steps(tmp_path) == [1, 2, 3]
    log.on_train_end(None, None, None)
    assert steps(tmp_path) == [1, 2, 3, 4, 5]
    table = read_token_log(tmp_path)
    assert table.schema.names == TOKENS.names and table.schema.metadata[b"prob_threshold"] == b"0.002"


def test_processes_write_files_of_their_own(tmp_path):
    for rank in (0, 1):
        log = TokenLog(tmp_path, rank)
        log.add([token(7, token=str(rank))], [])
        log.write()
    assert sorted(read_token_log(tmp_path)["token"].to_pylist()) == ["0", "1"]


def test_a_resumed_run_drops_what_it_does_again(tmp_path):
    for rank in (0, 1):
        log = TokenLog(tmp_path, rank)
        begin(log, 0, is_main=rank == 0)
        for step in range(1, 7):
            log.add([token(step)], [completion(step)])
            if step in (2, 4):
                log.write()  # as before a checkpoint
        log.write()
    begin(TokenLog(tmp_path), 4)
    assert steps(tmp_path) == [1, 1, 2, 2, 3, 3, 4, 4]
    assert max(steps(tmp_path, "completions")) == 4
    begin(TokenLog(tmp_path), 0)
    assert steps(tmp_path) == []


def test_an_unfinished_file_is_not_read(tmp_path):
    log = TokenLog(tmp_path)
    log.add([token(1)], [])
    log.write()
    (tmp_path / "token_log" / "tokens-00000002-00000.tmp").write_bytes(b"PAR1 and then the machine died")
    assert steps(tmp_path) == [1]


def test_a_shard_keeps_few_completions_and_prefers_those_with_silenced_tokens(tmp_path):
    log = TokenLog(tmp_path)
    for step in range(1, 3 * MAX_COMPLETIONS):
        log.add([token(step)], [completion(step, silenced=step == 2)])
    log.write()
    found = read_token_log(tmp_path, "completions")
    assert len(found) == MAX_COMPLETIONS and found.schema.names == COMPLETIONS.names
    assert 2 in found["step"].to_pylist() and 3 * MAX_COMPLETIONS - 1 in found["step"].to_pylist()


def test_a_folder_that_cannot_be_written_ends_the_log_with_one_warning(tmp_path):
    (tmp_path / "token_log").write_text("a file where the folder should be")
    log = TokenLog(tmp_path)
    log.add([token(1)], [completion(1)])
    with pytest.warns(UserWarning, match="training goes on") as caught:
        log.write()
        log.add([token(2)], [])
        log.write()
    assert len(caught) == 1 and log.recent[-1]["step"] == 2


def test_a_run_without_a_log_reads_as_empty_with_the_same_columns(tmp_path):
    assert read_token_log(tmp_path).num_rows == 0
    assert read_token_log(tmp_path, "completions").schema.names == COMPLETIONS.names


def test_hostile_text_comes_back_as_it_was(tmp_path):
    texts = ["</script>", "\x00", "\u202e", "\n\t", "\U0001f600", "\ufffd"]
    log = TokenLog(tmp_path)
    log.add([token(1, token=text) for text in texts], [])
    log.write()
    assert read_token_log(tmp_path)["token"].to_pylist() == texts


def test_files_are_ordinary_parquet(tmp_path):
    log = TokenLog(tmp_path)
    log.add([token(1, top_tokens=["a", "b"], top_probs=[0.75, 0.25])], [])
    log.write()
    (path,) = (tmp_path / "token_log").iterdir()
    assert pq.read_table(path)["top_tokens"].to_pylist() == [["a", "b"]]


def test_files_of_other_names_stop_no_run(tmp_path):
    log = TokenLog(tmp_path)
    log.add([token(1)], [])
    log.write()
    for name in ("tokens-old-copy.parquet", "tokens-1-2.parquet", ".tokens-00000001-00000.parquet"):
        (tmp_path / "token_log" / name).write_text("no parquet")
    state = SimpleNamespace(is_world_process_zero=True, global_step=1)
    TokenLog(tmp_path).on_train_begin(None, state, None)
    assert read_token_log(tmp_path).num_rows == 1
