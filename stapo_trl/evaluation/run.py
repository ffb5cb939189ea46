"""Samples problems, grades them while the next ones are generated, and measures."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from datasets import Dataset
from tqdm.auto import tqdm

from .benchmark import from_dataset, open_benchmark
from .grading import grade_samples, judge_samples
from .result import commit, measure, overall, save, versions, warnings_of
from .samples import Problem, Request, Sample, SampleFile
from .sampling.settings import FIXED, SamplingSettings
from .sampling.transformers_sampler import TransformersSampler


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
) -> dict:
    """
    Evaluate a model.

    Args:
        model (`str`, `PreTrainedModel`, or a sampler):
            Folder or hub name of a model or an adapter, a loaded model with its `tokenizer`, a
            [`TransformersSampler`] or a [`VLLMSampler`].
        benchmarks (`Sequence[str]` or `Mapping[str, Dataset]`):
            Names (see [`open_benchmark`]), or datasets under names of one's own.
        n (`int` or `Mapping[str, int]`, defaults to `4`):
            Samples for each problem, for all benchmarks or for each.
        settings ([`SamplingSettings`], *optional*):
            How to sample.
        output_dir (`str` or `Path`, *optional*):
            Folder for the samples and the result, named by the decoding. Samples that are there already are not
            generated again. Without one nothing is written.
        tokenizer (`PreTrainedTokenizerBase`, *optional*):
            Tokenizer of a loaded model.
        judge (`Callable`, *optional*):
            Judges what the rules rejected, after all samples are there and the model's memory is given back; see
            [`~stapo_trl.rewards.LLMJudge`].
        data_dir (`str` or `Path`, *optional*):
            Folder with local copies of the published benchmarks.
        size (`int`, *optional*):
            Only the first problems of each benchmark.
        show_progress (`bool`, defaults to `True`):
            Whether to show a bar where the output is a terminal.

    Returns:
        `dict`: see `measure` for `result["benchmarks"][name]`.

    Raises:
        `ValueError`: for settings that make no sense together, and samples of other settings in `output_dir`.

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
    opened = [
        from_dataset(name, benchmarks[name])
        if isinstance(benchmarks, Mapping)
        else open_benchmark(name, data_dir, size)
        for name in names
    ]
    if not opened or len({benchmark.name for benchmark in opened}) < len(opened):
        raise ValueError(f"Give at least one benchmark, and each once; got {names}.")
    sampler = model if hasattr(model, "sample") else TransformersSampler(model, tokenizer)
    requests = [
        request for name, benchmark in zip(names, opened, strict=True) for request in benchmark.requests(numbers[name])
    ]
    about = {
        "model": sampler.model if isinstance(sampler.model, str) else sampler.model.name_or_path,
        "weights": sampler.fingerprint,
        "backend": sampler.backend,
        "decoding": settings.label,
        "sampling": asdict(settings) | FIXED,
    }
    path = None if output_dir is None else Path(output_dir) / settings.label
    file = None if path is None else SampleFile(path.with_name(path.name + ".samples.jsonl"), about)
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
    result = about | {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "judge": None if judge is None else str(getattr(judge, "model", judge)),
        "versions": versions(),
        "commit": commit(),
        "overall": overall(measured),
        "warnings": warnings_of(measured),
        "benchmarks": measured,
    }
    if path is not None:
        save(result, path)
    return result


def sample_answers(
    sampler, requests: Sequence[Request], settings: SamplingSettings, file: SampleFile | None, show_progress: bool
) -> list[Sample]:
    """
    Graded samples, in the order of the requests: those of the file, and the others from the sampler.

    Args:
        sampler ([`TransformersSampler`] or [`VLLMSampler`]):
            Generates.
        requests (`Sequence[Request]`):
            What is asked.
        settings ([`SamplingSettings`]):
            How to sample.
        file ([`SampleFile`], *optional*):
            Holds samples of an earlier run, and gets the new ones once they are graded.
        show_progress (`bool`):
            Whether to show a bar where the output is a terminal.

    Returns:
        `list[Sample]`

    Raises:
        `ValueError`: if the file holds a sample of another prompt.
    """
    problems: dict[tuple[str, str], Problem] = {request.key[:2]: request.problem for request in requests}
    stored = {} if file is None else file.samples
    known = [stored[request.key] for request in requests if request.key in stored]
    for sample in known:
        if sample.checksum != problems[sample.key[:2]].checksum:
            raise ValueError(
                f"{file.path} answers another prompt of {sample.problem_id}: choose another folder, or remove it."
            )
    # Graded again, so that one version of the grader gave all verdicts
    done = {sample.key: sample for sample in grade_samples(known, problems)}
    missing = [request for request in requests if request.key not in done]
    with (
        # disable=None asks whether the output is a terminal
        tqdm(total=len(requests), initial=len(done), unit="sample", disable=None if show_progress else True) as bar,
        ThreadPoolExecutor(1) as grader,
    ):
        right = sum(sample.correct for sample in done.values())

        def take_in(finished: list[Sample]) -> None:
            nonlocal right
            graded = grade_samples(finished, problems)
            if file is not None:
                file.append(graded)
            done.update((sample.key, sample) for sample in graded)
            right += sum(sample.correct for sample in graded)
            bar.set_postfix_str(f"accuracy {100 * right / len(done):.1f} %", refresh=False)
            bar.update(len(graded))

        # One grader: verdicts are taken in while the sampler goes on; an error there stops the run at the next sample
        grading = []
        for finished in sampler.sample(missing, settings) if missing else ():
            grading.append(grader.submit(take_in, finished))
            while grading and grading[0].done():
                grading.pop(0).result()
        for future in grading:
            future.result()
    return [done[request.key] for request in requests]
