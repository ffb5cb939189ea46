"""The words of a command line over a recipe: `stapo train --recipe NAME key=value --flag value`."""

import argparse
import os
import re
import reprlib
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from types import UnionType
from typing import Union, get_args, get_origin, get_type_hints

import yaml
from trl import TrlParser

from . import closest, read_recipe


FROM_SCRATCH = ("--recipe", "--config", "--model_name_or_path", "--dataset_name")  # without them: the embedded recipe


class RecipeParser(TrlParser):
    """
    TRL's parser, with recipes below the command line, `key=value` beside `--key value`, and errors of one sentence.

    Args:
        dataclass_types (`Sequence[type]`):
            Dataclasses whose fields are the settings.
        prog (`str`):
            Name of the command in messages.

    Example:

    ```python
    >>> from stapo_trl import STAPOConfig
    >>> parser = RecipeParser([STAPOConfig], prog="example")
    >>> words = ["output_dir=run", "s2t_entropy_quantile=1.0", "--use_cpu", "true", "--bf16", "false"]
    >>> options, settings, about, words = parser.read_words(words, default=None)
    >>> settings
    {'output_dir': 'run', 's2t_entropy_quantile': '1.0'}
    >>> (config,) = parser.parse(settings, words)
    >>> config.s2t_entropy_quantile
    1.0
    ```
    """

    def __init__(self, dataclass_types: Sequence[type], prog: str):
        own = argparse.ArgumentParser(add_help=False, allow_abbrev=False, prog=prog)
        own.error = self.error
        source = own.add_mutually_exclusive_group()
        source.add_argument("--recipe", metavar="NAME", help="a recipe of this package: `stapo recipes` lists them")
        source.add_argument("--config", metavar="FILE", help="a recipe of your own: YAML, `base: NAME` included")
        own.add_argument("--dry_run", action="store_true", help="show what would run and what it takes, and stop")
        own.add_argument(
            "--num_processes", type=int, metavar="N", help="for --dry_run, if not the recipe's own number"
        )
        super().__init__(dataclass_types, prog=prog, parents=[own], allow_abbrev=False)
        self.own = own
        self.known = {}  # type hints; those of the fields themselves were cut to one of a union by the parser
        for dataclass_type in dataclass_types:
            hints = get_type_hints(dataclass_type)
            self.known |= {field.name: hints[field.name] for field in fields(dataclass_type)}

    def error(self, message: str):
        """Without the usage, whose hundreds of lines would hide the sentence."""
        self.exit(2, f"{self.prog}: {' '.join(message.split())}\n")

    def read_words(self, words: Sequence[str], default: str | None) -> tuple[Namespace, dict, dict, list[str]]:
        """
        Take apart a command line.

        Args:
            words (`Sequence[str]`):
                Arguments. A `key=value` sets a field as a line of the recipe would: lists and mappings are written as in
                YAML, `null` unsets. `--key value` goes over both.
            default (`str`, *optional*):
                Recipe below words that name no recipe, file, model or data.

        Returns:
            `tuple`: the options of the command (`recipe`, `config`, `dry_run`, `num_processes`), the settings of the
            recipe and the overrides, the recipe's `about`, and the other words.
        """
        overrides, words = _take_overrides(words)
        options, _ = self.own.parse_known_args(words)
        if options.num_processes is not None and options.num_processes < 1:
            self.error(f"--num_processes must be at least 1, got {options.num_processes}.")
        if options.num_processes and not options.dry_run:
            self.error("--num_processes is for --dry_run: a run takes its processes from accelerate launch.")
        names = [word.partition("=")[0] for word in words] + [f"--{key}" for key in overrides]
        if not any(name in FROM_SCRATCH for name in names):
            options.recipe = default
        try:
            self._check_names(overrides.keys() - {"env"})
            settings = self._read(options) | {key: self._read_value(key, text) for key, text in overrides.items()}
            self._check_names(settings.keys() - {"about", "env"})
        except ValueError as error:
            self.error(str(error))
        return options, settings, settings.pop("about", {}), words

    def parse(self, settings: dict, words: Sequence[str] = ()) -> tuple:
        """
        The dataclasses of these settings, with the words `--key value` over them.

        Args:
            settings (`dict`):
                As from [`load_recipe`]. Variables under `env` are set in the environment, as by TRL.
            words (`Sequence[str]`, *optional*):
                Arguments `--key value`.

        Returns:
            `tuple`: an instance of each dataclass.
        """
        settings = dict(settings)
        try:
            variables = settings.pop("env", None) or {}
            if not isinstance(variables, dict):
                raise ValueError(f"`env` must be a mapping, got {reprlib.repr(variables)}.")
            os.environ |= {str(name): str(value) for name, value in variables.items()}
            # Scalars go through the command line's own types and choices; argparse knows no words for the others
            scalars = {key: value for key, value in settings.items() if isinstance(value, (str, int, float))}
            others = {key: value for key, value in settings.items() if key not in scalars}
            for key, value in others.items():
                if not _fits(value, self.known[key]):
                    raise ValueError(f"{key} cannot be {'null' if value is None else reprlib.repr(value)}.")
            self.set_defaults_with_config(**others)
            words = [f"--{key}={value}" for key, value in scalars.items()] + list(words)
            _, unknown = self.parse_known_args(words)
            self._check_names([word.lstrip("-").partition("=")[0] for word in unknown])
            *parsed, _ = self.parse_args_into_dataclasses(words, look_for_args_file=False)
        except (TypeError, ValueError) as error:
            self.error(str(error))
        return tuple(parsed)

    def _read(self, options: Namespace) -> dict:
        if options.config:
            return read_recipe(Path(options.config))
        return read_recipe(options.recipe) if options.recipe else {}

    def _read_value(self, key: str, text: str):
        """Lists, mappings and null as in YAML; everything else stays the text that was typed."""
        if text == "null":
            return None
        if text.startswith(("[", "{")) and any(_fits(empty, self.known.get(key)) for empty in ([], {})):
            try:
                return yaml.safe_load(text)
            except (yaml.YAMLError, RecursionError) as error:
                raise ValueError(f"the value of {key} is no plain YAML: {reprlib.repr(text)}.") from error
        return text

    def _check_names(self, names) -> None:
        for name in names:
            if name not in self.known:
                raise ValueError(f"there is no setting '{name}': did you mean '{closest(name, self.known)}'?")


def _fits(value, hint) -> bool:
    """Whether null, a list or a mapping is of a type; of lists of text the items are looked at too."""
    for member in get_args(hint) if get_origin(hint) in (Union, UnionType) else [hint]:
        if type(value) is (get_origin(member) or member):
            return member != list[str] or all(isinstance(item, str) for item in value)
    return False


def _take_overrides(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The words `key=value` that are not the value of the option before them, and the other words."""
    overrides, others, before = {}, [], ""
    for word in words:
        takes_a_value = before.startswith("--") and "=" not in before and before != "--dry_run"
        if not takes_a_value and (match := re.fullmatch(r"([A-Za-z_]\w*)=(.*)", word, flags=re.DOTALL)):
            overrides[match[1]] = match[2]
        else:
            others.append(word)
        before = word
    return overrides, others
