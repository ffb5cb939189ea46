"""Evaluating a model: sample, grade while the next samples are generated, and measure."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from datasets import Dataset
from tqdm.auto import tqdm

from ..rewards import grade
from ..rewards.math_accuracy import question_text
from ..rewards.verifier.answer import gold_answer
from ..rewards.verifier.text.thinking import strip_thinking
from .benchmark import from_dataset, open_benchmarks
from .result import commit, find_warnings, measure, overall, save, versions
from .samples import Problem, Request, Sample, SampleFile
from .sampling.policy import check_chat_template
from .sampling.settings import FIXED, SamplingSettings
from .sampling.transformers_sampler import TransformersSampler


BATCH = 64  # samples that the verifier grades in one call, which has a time limit


def evaluate(
    model,
    benchmarks: Sequence[str] | Mapping[str, Dataset],
    n: int | Mapping[str, int] = 4,
    settings: SamplingSettings = SamplingSettings(),  # noqa: B008 (frozen)
    output_dir: str | Path | None = None,
    tokenizer=None,
    judge: Callable | None = None,
    data_dir: str | Path | None = None,
    size: int | None = None,
    show_progress: bool = True,
    chat_template_kwargs: Mapping | None = None,
    unusable: Literal["raise", "drop"] = "raise",
) -> dict:
    """
    Evaluate a model on benchmarks.

    Args:
        model (`str`, `PreTrainedModel`, or a sampler):
            Folder or hub name of a model or an adapter, a loaded model with its `tokenizer`, a
            [`TransformersSampler`] or a [`VLLMSampler`].
        benchmarks (`Sequence[str]` or `Mapping[str, Dataset]`):
            Names of `stapo_trl.data.BENCHMARKS`, `"arithmetic"` or local files; or, under names of your own, datasets
            with `prompt`, `solution` and `problem_id`.
        n (`int` or `Mapping[str, int]`, defaults to `4`):
            Samples for each problem, for all benchmarks or for each.
        settings ([`SamplingSettings`], *optional*):
            How to sample.
        output_dir (`str` or `Path`, *optional*):
            Folder for the samples and the result, whose files are named by the decoding. Samples that it holds already
            are not generated again. By default nothing is written.
        tokenizer (`PreTrainedTokenizerBase`, *optional*):
            Tokenizer of a loaded model.
        judge (`Callable`, *optional*):
            Judges what the rules rejected, once all samples are generated and the model's memory is freed; see
            [`~stapo_trl.rewards.LLMJudge`].
        data_dir (`str` or `Path`, *optional*):
            Folder with local copies of the published benchmarks.
        size (`int`, *optional*):
            Only the first problems of each benchmark.
        show_progress (`bool`, defaults to `True`):
            Whether to show a bar where the output is a terminal.
        chat_template_kwargs (`Mapping`, *optional*):
            Variables of the chat template, as in training, such as `{"enable_thinking": False}`. A sampler has its own.
        unusable (`str`, defaults to `"raise"`):
            `"raise"` refuses rows of a benchmark that cannot be asked or graded; `"drop"` drops them, and counts them
            as `dropped`.

    Returns:
        `dict`: the settings, versions and warnings; `"benchmarks"`, and `"overall"`, their mean. Each has `accuracy`
        (avg@N) with its 95 % `interval`; a benchmark also `pass@k` and `maj@k` for k = 1, 2, 4, ... and N, each
        `[value, lower, upper]`; the shares of samples that were `truncated`, have `no_answer`, had an answer
        `extracted`, `failed` in grading (a timeout or an error; they count as wrong) or were accepted by the judge
        (`judged`); the number of `unparseable_golds` (their problems count as wrong) and of
        rows `dropped` as unusable; `length`, mean tokens;
        `entropy`, mean over tokens in nats, or `None`; and `per_problem`, `{problem_id: [right, all]}`.

    Raises:
        `ValueError`: for contradictory settings, and samples of other settings in `output_dir`.

    Example:

    ```python
    result = evaluate("stapo-run", ["arithmetic"], n=4, settings=SamplingSettings(max_new_tokens=56))
    result["overall"]["accuracy"], result["overall"]["interval"]
    ```
    """
    names = list(benchmarks)
    numbers = {name: n if isinstance(n, int) else n[name] for name in names}
    for number in numbers.values():
        settings.check_n(number)
    if isinstance(benchmarks, Mapping):
        opened = [from_dataset(name, dataset) for name, dataset in benchmarks.items()]
    else:
        opened = open_benchmarks(names, data_dir, size, unusable)
    if not opened or len({benchmark.name for benchmark in opened}) < len(opened):
        raise ValueError(f"Give at least one benchmark, and each once; got {names}.")
    if not hasattr(model, "sample"):
        if tokenizer is not None:
            check_chat_template(tokenizer, chat_template_kwargs)
        sampler = TransformersSampler(model, tokenizer, chat_template_kwargs=chat_template_kwargs)
    elif chat_template_kwargs:
        raise ValueError("A sampler renders its prompts by itself: give `chat_template_kwargs` to the sampler.")
    else:
        sampler = model
    requests = [
        request for name, benchmark in zip(names, opened, strict=True) for request in benchmark.requests(numbers[name])
    ]
    metadata = {
        "model": sampler.model if isinstance(sampler.model, str) else sampler.model.name_or_path,
        "weights": sampler.fingerprint,
        "backend": sampler.backend,
        "decoding": settings.label,
        "sampling": asdict(settings) | FIXED,
        "chat_template_kwargs": getattr(sampler, "chat_template_kwargs", {}),
    }
    path = None if output_dir is None else Path(output_dir) / settings.label
    file = None if path is None else SampleFile(path.with_name(path.name + ".samples.jsonl"), metadata)
    samples = sample_answers(sampler, requests, settings, file, show_progress)
    if judge is not None:
        sampler.close()
        problems = {request.key[:2]: request.problem for request in requests}
        samples = judge_samples(samples, problems, judge)
    if file is not None and any(file.samples[sample.key] != sample for sample in samples):
        file.samples |= {sample.key: sample for sample in samples}
        file.write()

    measured = {
        benchmark.name: measure(benchmark, [sample for sample in samples if sample.benchmark == benchmark.name])
        for benchmark in opened
    }
    result = metadata | {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "judge": None if judge is None else str(getattr(judge, "model", judge)),
        "versions": versions(),
        "commit": commit(),
        "overall": overall(measured),
        "warnings": find_warnings(measured),
        "benchmarks": measured,
    }
    if path is not None:
        save(result, path)
    return result


def sample_answers(
    sampler, requests: Sequence[Request], settings: SamplingSettings, file: SampleFile | None, show_progress: bool
) -> list[Sample]:
    """
    Graded samples in the order of the requests: those in the file, and the others from the sampler.

    The file gets the new ones as they are graded; `ValueError` if it holds a sample of another prompt.
    """
    problems: dict[tuple[str, str], Problem] = {request.key[:2]: request.problem for request in requests}
    stored = {} if file is None else file.samples
    known = [stored[request.key] for request in requests if request.key in stored]
    for sample in known:
        if sample.checksum != problems[sample.key[:2]].checksum:
            raise ValueError(
                f"{file.path} answers another prompt of {sample.problem_id}: choose another folder, or remove it."
            )
    # Graded again, so that all verdicts are of one version of the grader
    done = {sample.key: sample for sample in grade_samples(known, problems)}
    missing = [request for request in requests if request.key not in done]
    with (
        # disable=None asks whether the output is a terminal
        tqdm(total=len(requests), initial=len(done), unit="sample", disable=None if show_progress else True) as bar,
        ThreadPoolExecutor(1) as grader,
    ):
        right = sum(sample.correct for sample in done.values())

        def store(finished: list[Sample]) -> None:
            nonlocal right
            graded = grade_samples(finished, problems)
            if file is not None:
                file.append(graded)
            done.update((sample.key, sample) for sample in graded)
            right += sum(sample.correct for sample in graded)
            bar.set_postfix_str(f"accuracy {100 * right / len(done):.1f} %", refresh=False)
            bar.update(len(graded))

        # An error of the grader stops the run at the next sample
        grading = []
        for finished in sampler.sample(missing, settings) if missing else ():
            grading.append(grader.submit(store, finished))
            while grading and grading[0].done():
                grading.pop(0).result()
        for future in grading:
            future.result()
    return [done[request.key] for request in requests]


def grade_samples(samples: Sequence[Sample], problems: dict[tuple[str, str], Problem]) -> list[Sample]:
    """The samples with the verdict of the rules, in the same order; `problems` by benchmark and `problem_id`."""
    graded = []
    for start in range(0, len(samples), BATCH):
        batch = samples[start : start + BATCH]
        golds = [problems[sample.key[:2]].solution for sample in batch]
        verdicts = grade([sample.text for sample in batch], golds)
        graded += [
            replace(sample, verdict=verdict.kind, answer=verdict.answer, judged=False)
            for sample, verdict in zip(batch, verdicts, strict=True)
        ]
    return graded


def judge_samples(
    samples: Sequence[Sample], problems: dict[tuple[str, str], Problem], judge: Callable
) -> list[Sample]:
    """The samples, of which those that the rules rejected and the judge accepts are now correct."""
    samples = list(samples)
    rejected = [
        index
        for index, sample in enumerate(samples)
        if sample.verdict not in ("correct", "unparseable_gold") and (strip_thinking(sample.text) or "").strip()
    ]
    judged = [problems[samples[index].key[:2]] for index in rejected]
    letters = judge(
        [question_text(problem.prompt) for problem in judged],
        [gold_answer(problem.solution) for problem in judged],
        [samples[index].text for index in rejected],
    )
    for index, letter in zip(rejected, letters, strict=True):
        if letter == "A":
            samples[index] = replace(samples[index], verdict="correct", judged=True)
    return samples
