"""A recipe and the command line over it: `stapo train --recipe NAME key=value --key value`."""

import argparse
import os
import re
import reprlib
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import UnionType
from typing import Union, get_args, get_origin, get_type_hints

import yaml
from trl import TrlParser

from . import closest, read_recipe


FROM_SCRATCH = {"recipe", "config", "model_name_or_path", "dataset_name"}  # without them: the default recipe


class RecipeParser(TrlParser):
    """
    TRL's parser, with recipes below the command line, `key=value` beside `--key value`, and errors of one sentence.

    ```python
    >>> from stapo_trl import STAPOConfig
    >>> parser = RecipeParser([STAPOConfig], prog="example")
    >>> argv = ["output_dir=run", "s2t_entropy_quantile=1.0", "--use_cpu", "true", "--bf16", "false"]
    >>> options, settings, metadata, argv = parser.read_argv(argv, default=None)
    >>> settings
    {'output_dir': 'run', 's2t_entropy_quantile': 1.0}
    >>> (config,) = parser.parse(settings, argv)
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
            "--num_processes", type=int, metavar="N", help="processes that --dry_run assumes (default: the recipe's)"
        )
        super().__init__(dataclass_types, prog=prog, parents=[own], allow_abbrev=False)
        self.own = own
        self.known = {}  # complete type hints: of a union, transformers' parser keeps one member
        for dataclass_type in dataclass_types:
            hints = get_type_hints(dataclass_type)
            self.known |= {field.name: hints[field.name] for field in fields(dataclass_type)}

    def error(self, message: str):
        """Without the usage, whose hundreds of lines would hide the message."""
        self.exit(2, f"{self.prog}: {' '.join(message.split())}\n")

    def read_argv(self, argv: Sequence[str], default: str | None) -> tuple[Namespace, dict, dict, list[str]]:
        """
        The command's own options, the settings of recipe and overrides, the recipe's `about`, and the other arguments.

        `default` names the recipe of a command line that names no recipe, file, model or data.
        """
        overrides, argv = split_overrides(argv)
        options, _ = self.own.parse_known_args(argv)
        if options.num_processes is not None and options.num_processes < 1:
            self.error(f"--num_processes must be at least 1, got {options.num_processes}.")
        if options.num_processes and not options.dry_run:
            self.error("--num_processes is for --dry_run: a run takes its processes from accelerate launch.")
        if not FROM_SCRATCH & {argument.partition("=")[0].removeprefix("--") for argument in [*argv, *overrides]}:
            options.recipe = default
        source = Path(options.config) if options.config else options.recipe
        try:
            settings = read_recipe(source) if source else {}
            metadata = settings.pop("about", {})
            self._check_names(settings.keys() - {"env"})
            settings |= self.read_overrides(overrides)
        except ValueError as error:
            self.error(str(error))
        return options, settings, metadata, argv

    def read_overrides(self, overrides: Mapping[str, str]) -> dict:
        """The values of `key=value`: null, lists and mappings as in YAML, everything else as after `--key`."""
        self._check_names(overrides)
        values, argv = {}, []
        for key, text in overrides.items():
            if text == "null":
                values[key] = None
            elif text.startswith(("[", "{")) and any(_fits(empty, self.known[key]) for empty in ([], {})):
                try:
                    values[key] = yaml.safe_load(text)
                except (yaml.YAMLError, RecursionError) as error:
                    raise ValueError(f"the value of {key} is not plain YAML: {reprlib.repr(text)}.") from error
            else:
                argv.append(f"--{key}={text}")
        parsed, _ = self.parse_known_args(argv)
        return {key: values[key] if key in values else getattr(parsed, key) for key in overrides}

    def parse(self, settings: Mapping, argv: Sequence[str] = ()) -> tuple:
        """An instance of each dataclass, with `argv` over the settings; `env` is set in the environment, as by TRL."""
        settings = dict(settings)
        try:
            variables = settings.pop("env", None) or {}
            if not isinstance(variables, dict):
                raise ValueError(f"`env` must be a mapping, got {reprlib.repr(variables)}.")
            os.environ |= {str(name): str(value) for name, value in variables.items()}
            # Scalars go through argparse with its types and choices; it cannot express the other values
            scalars = {key: value for key, value in settings.items() if isinstance(value, (str, int, float))}
            others = {key: value for key, value in settings.items() if key not in scalars}
            for key, value in others.items():
                if not _fits(value, self.known[key]):
                    raise ValueError(f"{key} cannot be {'null' if value is None else reprlib.repr(value)}.")
            self.set_defaults_with_config(**others)
            argv = [f"--{key}={value}" for key, value in scalars.items()] + list(argv)
            _, unknown = self.parse_known_args(argv)
            self._check_names([argument.lstrip("-").partition("=")[0] for argument in unknown])
            *parsed, _ = self.parse_args_into_dataclasses(argv, look_for_args_file=False)
        except (TypeError, ValueError) as error:
            self.error(str(error))
        return tuple(parsed)

    def _check_names(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.known:
                raise ValueError(f"there is no setting '{name}': did you mean '{closest(name, self.known)}'?")


def _fits(value, hint) -> bool:
    """Whether null, a list or a mapping has this type; of `list[str]` the items are checked too."""
    for member in get_args(hint) if get_origin(hint) in (Union, UnionType) else [hint]:
        if type(value) is (get_origin(member) or member):
            return member != list[str] or all(isinstance(item, str) for item in value)
    return False


def split_overrides(argv: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The arguments `key=value` that are not the value of the option before them, and the other arguments."""
    overrides, others, before = {}, [], ""
    for argument in argv:
        takes_a_value = before.startswith("--") and "=" not in before and before != "--dry_run"
        if not takes_a_value and (match := re.fullmatch(r"([A-Za-z_]\w*)=(.*)", argument, flags=re.DOTALL)):
            overrides[match[1]] = match[2]
        else:
            others.append(argument)
        before = argument
    return overrides, others
