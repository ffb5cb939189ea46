"""`stapo train`: TRL's GRPO script with STAPO and recipes; without arguments, the embedded recipe."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from transformers.utils import is_bitsandbytes_available
from trl import DatasetMixtureConfig, ModelConfig, get_peft_config, get_quantization_config

from ..arithmetic.run import build_trainer, measure, show_result
from ..arithmetic.warm_start import WarmStart
from ..observe.files import MetricsFile
from ..trainer.resume import StopOnInterrupt
from ..trainer.stapo import STAPOTrainer
from ..trainer.stapo_config import STAPOConfig
from .preview import dry_run
from .recipes.arguments import EMBEDDED, TrainArguments, get_datasets, get_reward_func
from .recipes.parser import RecipeParser


@contextmanager
def report_errors(parser: RecipeParser) -> Iterator[None]:
    """Ends the command with one sentence for what is wrong with its reward functions, data or model."""
    try:
        yield
    except (ValueError, OSError) as error:
        parser.error(str(error))


def main(argv: Sequence[str]) -> None:
    """Train, and save the model, its metrics and their picture in the run's folder."""
    parser = RecipeParser((TrainArguments, STAPOConfig, ModelConfig, DatasetMixtureConfig), prog="stapo train")
    options, settings, metadata, argv = parser.read_argv(argv, default="arithmetic")
    if options.dry_run:
        return dry_run(settings, argv, metadata, options.num_processes)
    # TRL's name of the field, which a recipe cannot avoid
    warnings.filterwarnings("ignore", message="`gradient_checkpointing` is deprecated", category=FutureWarning)
    script_args, args, model_args, mixture = parser.parse(settings, argv)
    if model_args.model_name_or_path is None:
        parser.error("--model_name_or_path is missing: give a model, or no model and no data for the embedded recipe.")
    quantization_config, peft_config = get_quantization_config(model_args), get_peft_config(model_args)
    if quantization_config is not None and not is_bitsandbytes_available():
        parser.error("--load_in_4bit and --load_in_8bit need bitsandbytes: pip install -U bitsandbytes")
    with report_errors(parser):
        reward_funcs = [get_reward_func(name, args) for name in script_args.reward_funcs]
    if model_args.model_name_or_path == EMBEDDED:
        if quantization_config is not None or peft_config is not None:
            parser.error(
                "The embedded recipe trains all weights of its own model: give --model_name_or_path and "
                "--dataset_name to train an adapter or a quantised model."
            )
        trainer = build_trainer(args, reward_funcs, WarmStart(seed=args.seed), heldout_every=20)
        before = measure(trainer)
        train(trainer)
        after = measure(trainer)
        if trainer.is_world_process_zero():
            show_result(trainer, before, after)
        return

    args.model_init_kwargs = {
        "revision": model_args.model_revision,
        "attn_implementation": model_args.attn_implementation,
        "dtype": model_args.dtype,
        **(args.model_init_kwargs or {}),
    }
    with report_errors(parser):
        train_dataset, eval_dataset = get_datasets(script_args, mixture, args.eval_strategy != "no")
        trainer = STAPOTrainer(
            model=model_args.model_name_or_path,
            reward_funcs=reward_funcs,
            args=args,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            quantization_config=quantization_config,
            peft_config=peft_config,
            callbacks=[MetricsFile()],
        )
    train(trainer)
    if args.push_to_hub:
        trainer.push_to_hub(dataset_name=script_args.dataset_name)


def train(trainer: STAPOTrainer) -> None:
    """Train until the end or an interrupt, then save the model and draw the metrics."""
    args = trainer.args
    stop = StopOnInterrupt()
    trainer.add_callback(stop)
    resume = args.resume_from_checkpoint
    if isinstance(resume, str) and resume.lower() == "true":
        resume = True  # the last checkpoint of the folder; any other text is the path of one
    trainer.train(resume_from_checkpoint=resume)
    trainer.save_model(args.output_dir)
    if trainer.is_world_process_zero():
        print(f"Model and metrics saved to {args.output_dir}.")
        if stop.stopped:
            print("Interrupted: repeat the command with --resume_from_checkpoint true to resume from the checkpoint.")
        if not trainer.state.log_history:  # stopped before anything was logged
            return
        try:
            from ..observe.report.curves import draw_run

            print(f"Picture of the run: {draw_run(args.output_dir)}. The whole report: stapo report {args.output_dir}")
        except ImportError:
            print('No picture without matplotlib: pip install "stapo-trl[report]".')
