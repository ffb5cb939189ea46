"""The evaluated model: its files and weights, how it reads a prompt, and which tokens end a completion."""

import hashlib
import inspect
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import cached_file
from transformers.utils.hub import extract_commit_hash

from ...rewards.completion import decode_response, plain_messages, render_chat
from ...rewards.verifier.text.thinking import find_open_tag


ADAPTER, CONFIG = "adapter_config.json", "config.json"
QUIET = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_connection_errors": False}
EDGE = 2**20  # bytes at both ends of a weight file that go into its fingerprint


def find_config(model: str, revision: str | None = None) -> Path:
    """The file that describes a model, `adapter_config.json` or `config.json`; `ValueError` if there is neither."""
    refusal = f"{model!r} is neither a folder with {CONFIG} or {ADAPTER}, nor a model on the hub that can be reached."
    try:
        found = [path for name in (ADAPTER, CONFIG) if (path := cached_file(model, name, revision=revision, **QUIET))]
    except OSError as error:  # no name that the hub could have, or a closed repository
        raise ValueError(f"{refusal} {error}") from error
    if not found:
        raise ValueError(refusal)
    return Path(found[0])


def fingerprint(model: str, revision: str | None = None) -> str:
    """
    Identifies weights, so that samples of others are never taken for theirs.

    The commit on the hub; for a folder, a checksum of its small files and of both ends of its weights.
    """
    config = find_config(model, revision)
    commit = extract_commit_hash(str(config), None)
    if commit:
        return commit
    checksum = hashlib.sha256()
    files = [file for file in config.parent.iterdir() if file.suffix in (".json", ".safetensors", ".bin", ".jinja")]
    for file in sorted(files):
        if file.name in ("trainer_state.json", "README.md"):
            continue
        checksum.update(f"{file.name} {file.stat().st_size}".encode())
        with open(file, "rb") as content:
            checksum.update(content.read(EDGE))
            content.seek(max(0, file.stat().st_size - EDGE))
            checksum.update(content.read(EDGE))
    return checksum.hexdigest()[:16]


def load_policy(model: str, revision: str | None = None) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a model, an adapter on its base, or a checkpoint of `stapo train`, in the data type it was saved in."""
    tokenizer = load_tokenizer(model, revision)
    return AutoModelForCausalLM.from_pretrained(model, revision=revision, dtype="auto", device_map="auto"), tokenizer


def load_tokenizer(model: str, revision: str | None = None) -> PreTrainedTokenizerBase:
    """The tokenizer of a model; for an adapter that was saved without one, that of its base."""
    base = base_of(model, revision)
    if base and not cached_file(model, "tokenizer_config.json", revision=revision, **QUIET):
        return AutoTokenizer.from_pretrained(base)
    return AutoTokenizer.from_pretrained(model, revision=revision)


def base_of(model: str, revision: str | None = None) -> str | None:
    """The base model of an adapter; `None` for a model."""
    from peft import PeftConfig

    if find_config(model, revision).name != ADAPTER:
        return None
    return PeftConfig.from_pretrained(model, revision=revision).base_model_name_or_path


def check_chat_template(tokenizer: PreTrainedTokenizerBase, chat_template_kwargs: Mapping | None) -> None:
    """Raise a `ValueError` for a variable that the chat template does not know, which it would ignore."""
    template = tokenizer.chat_template
    known = inspect.signature(tokenizer.apply_chat_template).parameters
    for name in chat_template_kwargs or ():
        used = template is not None and (
            not isinstance(template, str) or re.search(rf"\b{re.escape(name)}\b", template)
        )
        if name not in known and not used:
            seen = "the tokenizer has no chat template" if template is None else "the chat template does not use it"
            raise ValueError(f"`chat_template_kwargs` sets {name!r}, but {seen}: leave it out, or correct its name.")


def read_prompt(
    tokenizer: PreTrainedTokenizerBase,
    prompt: str | list[dict[str, str]],
    chat_template_kwargs: Mapping | None = None,
) -> list[int]:
    """
    Tokens of a prompt, text or messages, as GRPOTrainer has them with the same `chat_template_kwargs`.

    Messages go through the chat template, which may refuse them (`ValueError`); without one, blank lines join them, as
    base models are prompted.
    """
    if not isinstance(prompt, str):
        prompt = plain_messages(prompt)
        if tokenizer.chat_template:
            # Rendered first: `tokenize=True` returns another type in transformers 5. The template writes its own BOS
            text = render_chat(tokenizer, prompt, **(chat_template_kwargs or {}))
            return tokenizer(text, add_special_tokens=False)["input_ids"]
        prompt = "\n\n".join(message["content"] for message in prompt) + "\n"
    return tokenizer(prompt)["input_ids"]


def read_response(tokenizer: PreTrainedTokenizerBase, prompt: Sequence[int], completion: Sequence[int]) -> str:
    """The text of a completion, behind the opening tag of a thought if its prompt ends with one."""
    return find_open_tag(tokenizer.decode(prompt[-64:])) + decode_response(tokenizer, completion)


def end_tokens(tokenizer: PreTrainedTokenizerBase, *configs) -> set[int]:
    """Every token that the tokenizer or a configuration declares as an end; `ValueError` if there is none."""
    declared = [tokenizer.eos_token_id, *(getattr(config, "eos_token_id", None) for config in configs)]
    ends = set()
    for tokens in declared:
        ends |= set(tokens if isinstance(tokens, (list, tuple)) else [tokens])
    ends.discard(None)
    if not ends:
        raise ValueError("Neither the model nor its tokenizer declares an end token: no answer would ever end.")
    return ends
