"""Data sets, one file each. All have the columns `prompt`, `solution` (text), `problem_id` and `source`."""
