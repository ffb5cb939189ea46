"""[`EntropyAlarm`]: says when entropy leaves its band, with the tokens that were there, while the run can be saved."""

import math
import warnings
from collections import defaultdict
from statistics import median

from transformers import TrainerCallback

from .text import show_text, show_token


class EntropyAlarm(TrainerCallback):
    """
    Watches a run for what ends it: entropy that collapses or explodes, completions that are all cut off without a
    reward to tell them apart, and numbers that are not finite.

    Entropy is compared with the run's own level, its median over the first logged steps. An alarm is a warning on the
    main process; it is raised once, and again after the run has been back in its band.

    Args:
        trainer ([`STAPOTrainer`] or [`~trl.GRPOTrainer`], *optional*):
            Whose token log gives the evidence. Without one the warning has none.
        lowest, highest (`float`, *optional*, default to `0.25` and `2.0`):
            The band, as multiples of the level.
        level_steps (`int`, *optional*, defaults to `20`):
            Logged steps that make the level; no alarm about entropy before.
        patience (`int`, *optional*, defaults to `5`):
            Logged steps in a row outside of the band that raise an alarm.
        action (`str`, *optional*, defaults to `"warn"`):
            `"warn"`, `"save"` a checkpoint as well, or `"stop"`: save one and end the training.

    Raises:
        `ValueError`: if the band does not hold 1, a number of steps is below 1, or the action is unknown.

    Example:

    ```python
    trainer.add_callback(EntropyAlarm(trainer, action="save"))
    ```
    """

    def __init__(self, trainer=None, lowest=0.25, highest=2.0, level_steps=20, patience=5, action="warn"):
        if not 0 <= lowest < 1 < highest:
            raise ValueError(f"The band must hold the level itself: got lowest={lowest}, highest={highest} around 1.")
        if min(level_steps, patience) < 1:
            raise ValueError(f"`level_steps` and `patience` must be at least 1, got {level_steps} and {patience}.")
        if action not in ("warn", "save", "stop"):
            raise ValueError(f"`action` must be 'warn', 'save' or 'stop', got {action!r}.")
        self.trainer, self.lowest, self.highest = trainer, lowest, highest
        self.level_steps, self.patience, self.action = level_steps, patience, action

    def on_train_begin(self, args, state, control, **kwargs):
        self.first, self.streaks = [], defaultdict(int)
        for entry in state.log_history:  # of the run that is resumed
            self._find_signals(entry)

    def on_log(self, args, state, control, logs=None, **kwargs):
        alarms = self._find_signals(logs or {})
        if not alarms:
            return
        # The logged numbers are those of all processes, so every process decides alike
        control.should_save = control.should_save or self.action != "warn"
        control.should_training_stop = control.should_training_stop or self.action == "stop"
        if state.is_world_process_zero:
            ends = {"warn": "", "save": " A checkpoint is saved.", "stop": " A checkpoint is saved and training ends."}
            warnings.warn(f"Step {state.global_step}: {' '.join(alarms)}{ends[self.action]}{self._evidence()}")

    def _find_signals(self, logs: dict) -> list[str]:
        """One sentence for each alarm that this log entry raises."""
        entropy = logs.get("s2t/entropy", logs.get("entropy"))
        seen = {}
        if entropy is not None and math.isfinite(entropy):
            if len(self.first) < self.level_steps:
                self.first.append(entropy)
            level = median(self.first)
            made = len(self.first) == self.level_steps
            text = (
                f"entropy is {entropy:.3g} nats, {{}} its level of {level:.3g} in the first {self.level_steps} steps."
            )
            seen["Entropy collapses: " + text.format("far below")] = made and entropy < self.lowest * level
            seen["Entropy explodes: " + text.format("far above")] = made and entropy > self.highest * level
        if "completions/clipped_ratio" in logs and "frac_reward_zero_std" in logs:
            clipped, alike = logs["completions/clipped_ratio"] or 0.0, logs["frac_reward_zero_std"] or 0.0
            text = f"{100 * clipped:.0f} % of the completions are cut off and {100 * alike:.0f} % of the groups have equal rewards"
            seen[f"Nothing is learned: {text}; raise `max_completion_length`."] = clipped > 0.95 and alike > 0.95
        alarms = []
        for sentence, holds in seen.items():
            signal = sentence.partition(":")[0]
            self.streaks[signal] = self.streaks[signal] + 1 if holds else 0
            if self.streaks[signal] == self.patience:
                alarms.append(sentence)
        count = logs.get("s2t/nonfinite") or 0
        broken = [
            name
            for name in ("loss", "grad_norm")
            if isinstance(logs.get(name), float) and not math.isfinite(logs[name])
        ]
        if count or broken:
            parts = [f"{count:.0f} tokens" if count else "", *broken]
            alarms.append(f"Not finite: {' and '.join(part for part in parts if part)}.")
        return alarms

    def _evidence(self) -> str:
        """The last improbable tokens of correct responses, most of what moves entropy."""
        log = getattr(self.trainer, "token_log", None)
        rows = [row for row in log.recent if row["candidate"]][-5:] if log is not None else []
        lines = [
            f"\n  step {row['step']}: {show_text(row['before'][-40:])} >>{show_token(row['token'])}<< probability "
            f"{row['prob']:.2g}, entropy {row['entropy']:.2g}, advantage {row['advantage']:.2g}, "
            f"{'silenced' if row['silenced'] else 'trained'}"
            for row in rows
        ]
        return "\nThe last improbable tokens of correct responses:" + "".join(lines) if lines else ""
