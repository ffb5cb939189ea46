"""What a run will do by its settings alone: how completions are counted, and what in the settings contradicts."""

from dataclasses import dataclass, field
from math import ceil
from pathlib import Path

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id
from transformers import AutoConfig, PretrainedConfig
from trl import DatasetMixtureConfig, ModelConfig

from ...trainer.stapo_config import STAPOConfig
from ..train import EMBEDDED, TrainArguments


@dataclass
class Plan:
    """
    A run that has not started.

    Args:
        script_args ([`TrainArguments`]):
            Data and rewards.
        args ([`STAPOConfig`]):
            Settings of the trainer, made by [`planned_config`].
        model_args ([`~trl.ModelConfig`]):
            Model, adapter and quantisation.
        mixture ([`~trl.DatasetMixtureConfig`]):
            Mixture of data sets.
        about (`dict`):
            What the recipe says about itself.
        num_problems (`int`, *optional*):
            Problems of the training set, if known.
    """

    script_args: TrainArguments
    args: STAPOConfig
    model_args: ModelConfig
    mixture: DatasetMixtureConfig
    about: dict = field(default_factory=dict)
    num_problems: int | None = None

    @property
    def known_data(self) -> dict:
        """What the recipe says about its data set."""
        return self.about.get("data", {}).get(self.script_args.dataset_name, {})

    @property
    def prompt_length(self) -> int:
        """Tokens of the longest prompt; 0 if the recipe does not know the data set."""
        return self.known_data.get("prompt_length", 0)

    @property
    def sequence_length(self) -> int:
        """Tokens of the longest prompt and completion."""
        return self.prompt_length + self.args.max_completion_length

    @property
    def completions_per_step(self) -> int:
        """Completions of an optimizer step, of all processes."""
        args = self.args
        return args.world_size * args.per_device_train_batch_size * args.gradient_accumulation_steps

    @property
    def prompts_per_generation(self) -> int:
        """Prompts that are answered together."""
        return self.args.generation_batch_size // self.args.num_generations

    @property
    def steps_per_generation(self) -> float:
        """Optimizer steps that the completions of one generation are used for."""
        return self.args.steps_per_generation * self.args.num_iterations / self.args.gradient_accumulation_steps

    @property
    def steps_per_epoch(self) -> int | None:
        """Optimizer steps of an epoch, without its incomplete generation; `None` if there is none, or it is not known."""
        generations = (self.num_problems or 0) // self.prompts_per_generation
        return ceil(generations * self.steps_per_generation) or None

    @property
    def total_steps(self) -> int | None:
        """Optimizer steps of the run."""
        if self.args.max_steps > 0:
            return self.args.max_steps
        return self.steps_per_epoch and ceil(self.args.num_train_epochs * self.steps_per_epoch)


def planned_config(num_processes: int) -> type[STAPOConfig]:
    """[`STAPOConfig`] as it checks itself on the machine of the run: with so many processes, and GPUs that have bf16."""

    class PlannedConfig(STAPOConfig):
        world_size = num_processes

        def __post_init__(self):
            on_cpu, tf32 = self.use_cpu, self.tf32
            self.use_cpu, self.tf32 = True, None  # what this machine has is not asked
            super().__post_init__()
            self.use_cpu, self.tf32 = on_cpu, tf32

    return PlannedConfig


def find_model_config(name: str | None, about: dict) -> PretrainedConfig | None:
    """
    The configuration of a model, without the hub.

    Args:
        name (`str`, *optional*):
            Folder, or id on the hub.
        about (`dict`):
            Its `architecture` holds configurations by id.

    Returns:
        `PretrainedConfig`, or `None` if neither the recipe, nor a folder, nor the hub's cache tells.

    Raises:
        `ValueError`: if what tells is no configuration.
    """
    if name is None:
        return None
    if name == EMBEDDED:
        from ...arithmetic.warm_start import build_model

        return build_model().config
    try:
        if name in about.get("architecture", {}):
            return AutoConfig.for_model(**about["architecture"][name])
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"`architecture` of {name} is no configuration of transformers: {error}") from error
    try:
        return AutoConfig.from_pretrained(name, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError) as error:
        if Path(name).is_dir():
            raise ValueError(f"The folder {name} holds no model: {error}") from error
        return None


def find_contradictions(plan: Plan, config: PretrainedConfig | None) -> list[str]:
    """
    What the configuration does not check itself, since it stands in two places or first fails when an engine starts.

    Args:
        plan ([`Plan`]):
            The run.
        config (`PretrainedConfig`, *optional*):
            Configuration of its model.

    Returns:
        `list[str]`: a sentence for each contradiction.
    """
    args, model_args, about, length = plan.args, plan.model_args, plan.about, plan.sequence_length
    model, data, split = (
        model_args.model_name_or_path,
        plan.script_args.dataset_name,
        plan.script_args.dataset_test_split,
    )
    per_generation, accumulated = args.steps_per_generation, args.gradient_accumulation_steps
    context = getattr(config and config.get_text_config(), "max_position_embeddings", None) or length
    num_problems, prompts = plan.num_problems, plan.prompts_per_generation
    checks = [
        (not model, "model_name_or_path is missing: give the id or the folder of a model."),
        (not data and not plan.mixture.datasets, "No data to train on: give dataset_name, or `datasets` in a file."),
        (
            num_problems is not None and num_problems < prompts,
            f"One generation takes {prompts} prompts, but {data} has {num_problems}: lower per_device_train_batch_size or "
            "steps_per_generation.",
        ),
        (
            max(per_generation, accumulated) % min(per_generation, accumulated) != 0,
            f"steps_per_generation {per_generation} and gradient_accumulation_steps {accumulated}: neither divides the "
            "other, so optimizer steps would mix parts of two generations.",
        ),
        (
            args.eval_strategy != "no" and split not in plan.known_data.get("splits", [split]),
            f"{data} has no split '{split}' for eval_strategy: evaluate with `stapo evaluate`, or set dataset_test_split.",
        ),
        (
            (model_args.load_in_4bit or model_args.load_in_8bit) and not model_args.use_peft,
            "A quantised model cannot be trained itself: set use_peft=true to train an adapter on it.",
        ),
        (
            args.fp16 and model_args.dtype == "float16" and not model_args.use_peft,
            "fp16 scales gradients, which float16 weights cannot hold: set dtype=float32, or use_peft=true to train an "
            "adapter.",
        ),
        (
            about.get("bf16") is False and (args.bf16 or model_args.dtype == "bfloat16"),
            f"{about.get('gpu')} has no bf16: set bf16=false fp16=true dtype=float16.",
        ),
        (
            length > context,
            f"Prompt and completion take up to {length} tokens, but the model reads {context}: lower "
            "max_completion_length.",
        ),
    ]
    if args.use_vllm:
        checks += [
            (
                args.vllm_mode not in ("colocate", "server"),
                f"vllm_mode must be 'colocate' or 'server', got '{args.vllm_mode}'.",
            ),
            (
                (args.vllm_max_model_length or length) < length,
                f"vllm_max_model_length {args.vllm_max_model_length} is less than prompt and completion, {length} tokens: "
                "raise it, or lower max_completion_length.",
            ),
        ]
    if args.use_vllm and args.vllm_mode == "colocate":
        group, share = args.vllm_tensor_parallel_size, args.vllm_gpu_memory_utilization
        checks += [
            (
                group < 1 or args.world_size % group != 0,
                f"vllm_tensor_parallel_size {group} does not divide the number of processes, {args.world_size}, which "
                "share their GPUs with vLLM.",
            ),
            (
                not 0 < share <= 1,
                f"vllm_gpu_memory_utilization is a share of the GPU in (0, 1], got {share}.",
            ),
        ]
    return [sentence for wrong, sentence in checks if wrong]


def check_id(name: str | None) -> None:
    """Refuse a name that is neither a file, nor a folder, nor an id of the hub."""
    if name and not Path(name).exists():
        try:
            validate_repo_id(name)
        except HFValidationError as error:
            raise ValueError(f"There is no file or folder {name}, and it is no id of the hub.") from error
        if Path(name).suffix in (".csv", ".json", ".jsonl", ".parquet"):
            raise ValueError(f"There is no file {name}.")
