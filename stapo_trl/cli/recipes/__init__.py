"""Recipes: the settings of `stapo train` as YAML, each a base and the lines that differ. See README.md."""

import difflib
import reprlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml


FOLDER = Path(__file__).parent
METADATA = {
    "summary": str,
    "wall_time": str,
    "measured": str,
    "gpus": int,
    "gpu": str,
    "gpu_memory": (int, float),
    "bf16": bool,
    "launch": str,
    "evaluation": str,
    "architecture": dict,
    "data": dict,
}
DATA = {"problems": int, "prompt_length": int, "download": (int, float), "splits": list}
__all__ = ["closest", "list_recipes", "load_recipe", "read_recipe"]


def list_recipes() -> list[str]:
    """Names of the recipes that come with the package, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*/*.yaml"))


def load_recipe(name_or_path: str | Path, overrides: Mapping | None = None) -> dict:
    """
    The settings of a recipe, merged with those of its bases.

    Args:
        name_or_path (`str` or `Path`):
            Name of a recipe of this package, or a YAML file: a `Path`, or a string that ends with `.yaml` or `.yml`.
        overrides (`Mapping`, *optional*):
            Settings that replace those of the recipe.

    Returns:
        `dict`: fields of [`STAPOConfig`], TRL's `ModelConfig` and `DatasetMixtureConfig`, and `stapo train`.

    Raises:
        `ValueError`: if there is no such recipe or file, or a file is not a plain YAML mapping or is its own base.

    Example:

    ```python
    >>> settings = load_recipe("arithmetic", {"max_steps": 2})
    >>> settings["max_steps"], settings["num_generations"]
    (2, 8)
    ```
    """
    settings = read_recipe(name_or_path)
    settings.pop("about")
    return settings | dict(overrides or {})


def read_recipe(name_or_path: str | Path) -> dict:
    """The settings of [`load_recipe`], with the recipe's `about` under that key."""
    files = [_find(name_or_path, Path.cwd())]
    layers = [_read(files[0])]
    while base := layers[-1].pop("base", None):
        if not isinstance(base, str):
            raise ValueError(f"`base` in {files[-1]} must be the name of one recipe or file, got {base!r}.")
        files.append(_find(base, files[-1].parent))
        if files[-1] in files[:-1]:
            raise ValueError(f"{files[-1]} is its own base: {' -> '.join(file.name for file in files)}.")
        layers.append(_read(files[-1]))
    merged = {"about": {}}
    for path, layer in reversed(list(zip(files, layers, strict=True))):
        metadata = layer.pop("about", None) or {}
        _check_types(metadata, METADATA, f"`about` of {path}")
        for name, known in metadata.get("data", {}).items():
            _check_types(known, DATA, f"`data: {name}` of {path}")
        merged |= layer | {"about": merged["about"] | metadata}
    return merged


def closest(name: str, known: Iterable[str]) -> str:
    """The known name that is most like this one."""
    return difflib.get_close_matches(name, list(known), n=1, cutoff=0.0)[0]


def _find(name_or_path: str | Path, folder: Path) -> Path:
    if isinstance(name_or_path, Path) or name_or_path.endswith((".yaml", ".yml")):
        path = (folder / name_or_path).resolve()
        if not path.is_file():
            raise ValueError(f"There is no file {name_or_path}, looked for as {path}.")
        return path
    names = list_recipes()
    if name_or_path not in names:
        raise ValueError(
            f"There is no recipe '{name_or_path}': did you mean '{closest(name_or_path, names)}'? `stapo recipes` "
            "lists them all; a file of your own ends with .yaml."
        )
    return next(FOLDER.glob(f"*/{name_or_path}.yaml"))


def _check_types(mapping, types: Mapping, place: str) -> None:
    if not isinstance(mapping, dict):
        raise ValueError(f"{place} must be a mapping, got {reprlib.repr(mapping)}.")
    for key, value in mapping.items():
        if key not in types:
            raise ValueError(f"{place} has no key '{key}': did you mean '{closest(str(key), types)}'?")
        if not isinstance(value, types[key]):
            raise ValueError(f"'{key}' in {place} has the wrong type, got {reprlib.repr(value)}.")


class Loader(yaml.SafeLoader):
    """Plain YAML, in which no mapping has a key twice."""

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key '{key.value}' stands there twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _read(path: Path) -> dict:
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader)  # noqa: S506 (a SafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or type(error).__name__
        raise ValueError(f"{path} is not plain YAML{f', line {mark.line + 1}' if mark else ''}: {problem}.") from error
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise ValueError(f"{path} must hold a YAML mapping with names as keys, got {type(content).__name__}.")
    return content
