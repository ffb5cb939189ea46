"""`python -m stapo_trl`, which launchers of several processes start."""

from .cli import main


if __name__ == "__main__":
    main()
