"""Benchmarks during training: task metrics that do not depend on the reward."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType, gather_object
from datasets import Dataset
from transformers import PreTrainedModel, TrainerCallback

from .benchmark import from_dataset, open_benchmarks
from .result import measure
from .run import sample_answers
from .sampling.settings import SamplingSettings
from .sampling.transformers_sampler import TransformersSampler


class BenchmarkCallback(TrainerCallback):
    """
    Evaluates the policy during training; the next log entry has `NAME/avg@N`, `NAME/pass@N`, `NAME/no_answer`,
    `NAME/truncated` and `NAME/length` for each benchmark.

    Where the trainer evaluates, its metrics get the same numbers as `eval_NAME/avg@N`, for `metric_for_best_model` and
    `load_best_model_at_end`. Prompts are rendered with the trainer's `chat_template_kwargs`. The run itself does not change: its random generators are not used, and modes, adapters,
    tokenizer and generation settings are restored.

    Args:
        every_steps (`int`):
            Optimizer steps between two evaluations.
        benchmarks (`Sequence[str]` or `Mapping[str, Dataset]`):
            Names (see [`evaluate`]), or datasets under names of your own.
        n (`int`, defaults to `4`):
            Samples for each problem.
        settings ([`SamplingSettings`], *optional*):
            How to sample.
        batch_size (`int`, defaults to `64`):
            Answers at a time on each process.
        data_dir (`str` or `Path`, *optional*):
            Folder with local copies of the published benchmarks.
        trainer ([`~transformers.Trainer`], *optional*):
            The trainer, only needed for trackers (Weights & Biases, Trackio, TensorBoard), which read a log before
            later callbacks add to it. `trainer.state.log_history` has the numbers either way.
        unusable (`str`, defaults to `"raise"`):
            What to do with rows of a benchmark that cannot be used; see [`evaluate`].

    Raises:
        `ValueError`: for contradictory settings, unknown benchmarks, and, when training begins, weights that are
        sharded (FSDP, DeepSpeed ZeRO-3), as every process generates on its own.

    Example:

    ```python
    trainer = STAPOTrainer(..., callbacks=[BenchmarkCallback(every_steps=50, benchmarks=["aime24"], n=4)])
    ```
    """

    def __init__(
        self,
        every_steps: int,
        benchmarks: Sequence[str] | Mapping[str, Dataset],
        n: int = 4,
        settings: SamplingSettings = SamplingSettings(),  # noqa: B008 (frozen)
        batch_size: int = 64,
        data_dir: str | Path | None = None,
        trainer=None,
        unusable: Literal["raise", "drop"] = "raise",
    ):
        if every_steps < 1:
            raise ValueError(f"`every_steps` must be at least 1, got {every_steps}.")
        settings.check_n(n)
        if isinstance(benchmarks, Mapping):
            self.benchmarks = [from_dataset(name, dataset) for name, dataset in benchmarks.items()]
        else:
            self.benchmarks = open_benchmarks(benchmarks, data_dir, unusable=unusable)
        self.every_steps, self.n, self.settings, self.batch_size = every_steps, n, settings, batch_size
        self.trainer = trainer
        self.step, self.metrics, self.logged = None, {}, True

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        is_fsdp = AcceleratorState().distributed_type == DistributedType.FSDP
        if is_fsdp or any(hasattr(parameter, "ds_id") for parameter in model.parameters()):
            raise ValueError(
                "BenchmarkCallback needs the whole policy on each process, but FSDP or DeepSpeed ZeRO-3 shards its "
                "weights: remove the callback and run `stapo evaluate` on the checkpoints."
            )

    def on_step_end(self, args, state, control, model=None, processing_class=None, **kwargs):
        if state.global_step % self.every_steps == 0:
            self._measure(state.global_step, model, processing_class, args)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if not self.logged and not any(name.startswith("eval_") for name in logs):
            self.logged = True
            if self.trainer is None:
                logs |= self.metrics
                state.log_history[-1] |= self.metrics

    def on_evaluate(self, args, state, control, model=None, processing_class=None, metrics=None, **kwargs):
        if self.step != state.global_step:
            self._measure(state.global_step, model, processing_class, args)
        metrics |= {f"eval_{name}": value for name, value in self.metrics.items()}
        state.log_history[-1] |= {f"eval_{name}": value for name, value in self.metrics.items()}

    def _measure(self, step: int, model: PreTrainedModel, processing_class, args=None) -> None:
        tokenizer = getattr(processing_class, "tokenizer", processing_class)
        chat_template_kwargs = getattr(args, "chat_template_kwargs", None)
        sampler = TransformersSampler(
            model, tokenizer, batch_size=self.batch_size, chat_template_kwargs=chat_template_kwargs
        )
        requests = [request for benchmark in self.benchmarks for request in benchmark.requests(self.n)]
        state = PartialState()
        ours = requests[state.process_index :: state.num_processes]
        samples = gather_object(sample_answers(sampler, ours, self.settings, None, show_progress=False))
        self.step, self.metrics, self.logged = step, {}, False
        for benchmark in self.benchmarks:
            name = benchmark.name
            found = measure(benchmark, [sample for sample in samples if sample.benchmark == name])
            self.metrics |= {
                f"{name}/avg@{self.n}": found["accuracy"],
                f"{name}/pass@{self.n}": found["pass@k"][str(self.n)][0],
                **{f"{name}/{key}": found[key] for key in ("no_answer", "truncated", "length")},
            }
        if self.trainer is not None:
            for name, value in self.metrics.items():
                self.trainer._metrics["train"][name].append(value)
