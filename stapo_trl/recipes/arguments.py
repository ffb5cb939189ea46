"""The words of a command line over a recipe: `stapo train --recipe NAME key=value --flag value`."""

import argparse
import os
import re
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

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
    >>> config, options, about = parser.parse_words(words, default=None)
    >>> config.s2t_entropy_quantile, options.dry_run, about
    (1.0, False, {})
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
        self.known = {field.name for dataclass_type in dataclass_types for field in fields(dataclass_type)}

    def error(self, message: str):
        """Without the usage, whose hundreds of lines would hide the sentence."""
        self.exit(2, f"{self.prog}: {message}\n")

    def parse_words(self, words: Sequence[str], default: str | None) -> tuple:
        """
        Parse a command line.

        Args:
            words (`Sequence[str]`):
                Arguments. A `key=value` sets a field as a line of the recipe would: lists and mappings are written as in
                YAML, `null` unsets. `--key value` goes over both.
            default (`str`, *optional*):
                Recipe below words that name no recipe, file, model or data.

        Returns:
            `tuple`: an instance of each dataclass, the options of the command (`recipe`, `config`, `dry_run`,
            `num_processes`), and the recipe's `about`.
        """
        overrides, words = _take_overrides(words)
        options, _ = self.own.parse_known_args(words)
        names = [word.partition("=")[0] for word in words] + [f"--{key}" for key in overrides]
        if not any(name in FROM_SCRATCH for name in names):
            options.recipe = default
        try:
            settings = self._read(options) | overrides
            about = settings.pop("about", {})
            for name, value in dict(settings.pop("env", None) or {}).items():
                os.environ[name] = str(value)
            self._check_names(settings)
            # Scalars go through the command line's own types and choices; argparse knows no words for the others
            scalars = {key: value for key, value in settings.items() if isinstance(value, (str, int, float))}
            self.set_defaults_with_config(**{key: settings[key] for key in settings.keys() - scalars.keys()})
            words = [f"--{key}={value}" for key, value in scalars.items()] + list(words)
            _, unknown = self.parse_known_args(words)
            self._check_names([word.lstrip("-").partition("=")[0] for word in unknown])
            *parsed, _ = self.parse_args_into_dataclasses(words, look_for_args_file=False)
        except (TypeError, ValueError) as error:
            self.error(str(error))
        return *parsed, options, about

    def _read(self, options: Namespace) -> dict:
        if options.config:
            return read_recipe(Path(options.config))
        return read_recipe(options.recipe) if options.recipe else {}

    def _check_names(self, names) -> None:
        for name in names:
            if name not in self.known:
                raise ValueError(f"there is no setting '{name}': did you mean '{closest(name, self.known)}'?")


def _take_overrides(words: Sequence[str]) -> tuple[dict, list[str]]:
    """The words `key=value` that are not the value of the option before them, and the other words."""
    overrides, others, before = {}, [], ""
    for word in words:
        takes_a_value = before.startswith("--") and "=" not in before and before != "--dry_run"
        if not takes_a_value and (match := re.fullmatch(r"([A-Za-z_]\w*)=(.*)", word, flags=re.DOTALL)):
            overrides[match[1]] = _read_value(match[2])
        else:
            others.append(word)
        before = word
    return overrides, others


def _read_value(text: str):
    """Lists, mappings and null as in YAML; everything else stays the text that was typed."""
    if text.strip() != "null" and not text.lstrip().startswith(("[", "{")):
        return text
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text
