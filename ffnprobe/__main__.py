"""`python -m ffnprobe` is the command `ffnprobe`."""

from ffnprobe.cli.main import main

if __name__ == "__main__":
    main()
