"""The paper's comparison as an experiment that fits a CPU: `stapo experiment`."""
