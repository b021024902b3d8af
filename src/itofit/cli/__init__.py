"""The command line: `itofit fit | forecast | score | info | simulate | demo`."""

from itofit.cli.main import main as main
