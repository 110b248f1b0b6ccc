"""The command `ffnprobe`, also `python -m ffnprobe`."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C while it is being imported is one line, too."""
    try:
        from ffnprobe.cli.failures import take_interrupts

        take_interrupts()
        from ffnprobe.cli.main import main as run
    except KeyboardInterrupt:
        print("interrupted: nothing was written.", file=sys.stderr)
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
