"""What a run will do according to its settings alone, and where they contradict each other."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id
from transformers import AutoConfig, PretrainedConfig
from trl import DatasetMixtureConfig, ModelConfig

from ...arithmetic.warm_start import build_model
from ...trainer.stapo_config import STAPOConfig
from ..recipes.arguments import EMBEDDED, TrainArguments


@dataclass
class Plan:
    """A run that has not started; `metadata` is the recipe's `about`, `num_problems` is `None` if unknown."""

    script_args: TrainArguments
    args: STAPOConfig
    model_args: ModelConfig
    mixture: DatasetMixtureConfig
    metadata: dict = field(default_factory=dict)
    num_problems: int | None = None

    @property
    def known_data(self) -> dict:
        """What the recipe says about its data set."""
        return self.metadata.get("data", {}).get(self.script_args.dataset_name, {})

    @property
    def prompt_length(self) -> int:
        """Tokens of the longest prompt; 0 if unknown."""
        return self.known_data.get("prompt_length", 0)

    @property
    def sequence_length(self) -> int:
        """Tokens of the longest prompt and completion."""
        return self.prompt_length + self.args.max_completion_length

    @property
    def completions_per_step(self) -> int:
        """Completions of an optimizer step, over all processes."""
        args = self.args
        return args.world_size * args.per_device_train_batch_size * args.gradient_accumulation_steps

    @property
    def prompts_per_generation(self) -> int:
        return self.args.generation_batch_size // self.args.num_generations

    @property
    def steps_per_generation(self) -> float:
        """Optimizer steps that use the completions of one generation (TRL's field counts micro-batches)."""
        return self.args.steps_per_generation * self.args.num_iterations / self.args.gradient_accumulation_steps

    @property
    def steps_per_epoch(self) -> int | None:
        """Optimizer steps of an epoch, without its incomplete generation; `None` if there are none, or unknown."""
        generations = (self.num_problems or 0) // self.prompts_per_generation
        return ceil(generations * self.steps_per_generation) or None

    @property
    def total_steps(self) -> int | None:
        """Optimizer steps of the run."""
        if self.args.max_steps > 0:
            return self.args.max_steps
        return self.steps_per_epoch and ceil(self.args.num_train_epochs * self.steps_per_epoch)


def planned_config(num_processes: int) -> type[STAPOConfig]:
    """[`STAPOConfig`] as it checks itself with this many processes, on GPUs with bf16, whatever this machine has."""

    class PlannedConfig(STAPOConfig):
        world_size = num_processes

        def __post_init__(self):
            on_cpu, tf32 = self.use_cpu, self.tf32
            self.use_cpu, self.tf32 = True, None
            super().__post_init__()
            self.use_cpu, self.tf32 = on_cpu, tf32

    return PlannedConfig


def find_model_config(name: str | None, metadata: dict) -> PretrainedConfig | None:
    """The configuration of a model: the recipe's, a folder's or one in the hub's cache; `None` if there is none."""
    if name is None:
        return None
    if name == EMBEDDED:
        return build_model().config
    try:
        if name in metadata.get("architecture", {}):
            return AutoConfig.for_model(**metadata["architecture"][name])
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"`architecture` of {name} is not a configuration of transformers: {error}") from error
    try:
        return AutoConfig.from_pretrained(name, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError) as error:
        if Path(name).is_dir():
            raise ValueError(f"The folder {name} holds no model: {error}") from error
        return None


def find_contradictions(plan: Plan, config: PretrainedConfig | None) -> Iterator[str]:
    """A sentence for each contradiction that [`STAPOConfig`] does not check, or that only stops an engine."""
    args, model_args, metadata, length = plan.args, plan.model_args, plan.metadata, plan.sequence_length
    data, split = plan.script_args.dataset_name, plan.script_args.dataset_test_split
    if not model_args.model_name_or_path:
        yield "model_name_or_path is missing: give the id or the folder of a model."
    if not data and not plan.mixture.datasets:
        yield "No data to train on: give dataset_name, or `datasets` in a file."
    if plan.num_problems is not None and plan.num_problems < plan.prompts_per_generation:
        yield (
            f"One generation takes {plan.prompts_per_generation} prompts, but {data} has {plan.num_problems}: lower "
            "per_device_train_batch_size or steps_per_generation."
        )
    per_generation, accumulated = args.steps_per_generation, args.gradient_accumulation_steps
    if max(per_generation, accumulated) % min(per_generation, accumulated):
        yield (
            f"steps_per_generation {per_generation} and gradient_accumulation_steps {accumulated}: neither divides "
            "the other, so optimizer steps would mix parts of two generations."
        )
    if args.eval_strategy != "no" and split not in plan.known_data.get("splits", [split]):
        yield (
            f"{data} has no split '{split}' for eval_strategy: evaluate with `stapo evaluate`, or set "
            "dataset_test_split."
        )
    if (model_args.load_in_4bit or model_args.load_in_8bit) and not model_args.use_peft:
        yield "A quantised model cannot be trained itself: set use_peft=true to train an adapter on it."
    if args.fp16 and model_args.dtype == "float16" and not model_args.use_peft:
        yield (
            "fp16 scales gradients, which float16 weights cannot hold: set dtype=float32, or use_peft=true to train "
            "an adapter."
        )
    if metadata.get("bf16") is False and (args.bf16 or model_args.dtype == "bfloat16"):
        yield f"{metadata.get('gpu')} has no bf16: set bf16=false fp16=true dtype=float16."
    context = getattr(config and config.get_text_config(), "max_position_embeddings", None) or length
    if length > context:
        yield (
            f"Prompt and completion take up to {length} tokens, but the model reads {context}: lower "
            "max_completion_length."
        )
    if not args.use_vllm:
        return
    if args.vllm_mode not in ("colocate", "server"):
        yield f"vllm_mode must be 'colocate' or 'server', got '{args.vllm_mode}'."
    if (args.vllm_max_model_length or length) < length:
        yield (
            f"vllm_max_model_length {args.vllm_max_model_length} is less than prompt and completion, {length} tokens: "
            "raise it, or lower max_completion_length."
        )
    if args.vllm_mode == "colocate":
        group, share = args.vllm_tensor_parallel_size, args.vllm_gpu_memory_utilization
        if group < 1 or args.world_size % group:
            yield (
                f"vllm_tensor_parallel_size {group} does not divide the number of processes, {args.world_size}, which "
                "share their GPUs with vLLM."
            )
        if not 0 < share <= 1:
            yield f"vllm_gpu_memory_utilization is a share of the GPU in (0, 1], got {share}."


def check_id(name: str | None) -> None:
    """Refuse a name that is not a file, a folder or an id of the hub."""
    if name and not Path(name).exists():
        try:
            validate_repo_id(name)
        except HFValidationError as error:
            raise ValueError(f"There is no file or folder {name}, and it is not an id of the hub.") from error
        if Path(name).suffix in (".csv", ".json", ".jsonl", ".parquet"):
            raise ValueError(f"There is no file {name}.")
