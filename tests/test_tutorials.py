"""The tutorials run as they stand, block by block, and end at their picture."""

import re
from pathlib import Path

import matplotlib as mpl
import pytest

TUTORIALS = Path(__file__).parent.parent / "docs" / "tutorials"

pytestmark = pytest.mark.filterwarnings("ignore::itofit.errors.FitWarning")


@pytest.fixture(params=sorted(TUTORIALS.glob("*.md")), ids=lambda page: page.stem)
def page(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mpl.use("Agg")
    return request.param


def run(page, change=lambda code: code):
    """What the blocks of a page leave behind, run in order in one scope."""
    scope = {"__name__": page.stem}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(change(block), str(page), "exec"), scope)
    assert (Path.cwd() / f"{page.stem}.png").stat().st_size > 10_000
    return scope


def test_every_block_runs_and_the_picture_is_there(page, capsys):
    """Only the budget is cut."""
    shorter = "random_state=0, solver=itofit.Moments(n_iter=8))"
    scope = run(page, lambda code: code.replace("random_state=0)", shorter))
    assert scope["model"].solver.n_iter == 8
    assert capsys.readouterr().out.startswith("2 left out (interpolation)")


@pytest.mark.slow
def test_a_tutorial_says_what_its_page_says(page):
    scope = run(page)
    card = scope["left"].scorecard
    assert card.verdict(2.0) == "at the floor"
    assert card.at(2.0)["W1"].value < card.at(2.0)["W1"].midpoint
