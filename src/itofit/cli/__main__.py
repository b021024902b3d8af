"""`python -m itofit.cli`."""

from itofit.cli.main import main

main()
