"""The package as a whole: what it imports, what the README promises."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from itofit import Moments

ROOT = Path(__file__).parent.parent


def test_core_imports_without_the_optional_packages():
    """Everything left of `plot` needs jax, equinox, optax, jaxtyping, numpy, scipy and scikit-learn
    alone.
    """
    blocked = [
        "matplotlib",
        "typer",
        "rich",
        "ot",
        "pyarrow",
        "pandas",
        "anndata",
        "plotly",
        "beartype",
        "diffrax",
    ]
    code = (
        "import sys\n"
        f"for name in {blocked}: sys.modules[name] = None\n"
        "import itofit\n"
        "itofit.Persistence().fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1]).predict(1.0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_import_rule():
    done = subprocess.run(
        [sys.executable, ROOT / "tools/check_imports.py"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_version_is_said_once():
    import itofit

    assert f'version = "{itofit.__version__}"' in (ROOT / "pyproject.toml").read_text()


def test_readme_quickstart_runs(tmp_path, monkeypatch):
    """Every python block of the README, in order, as a reader would paste them; only the budget is
    cut.
    """
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)
    assert blocks
    code = "\n".join(blocks)
    assert "random_state=0" in code
    code = code.replace("random_state=0", "random_state=0, solver=Moments(n_iter=10)")
    exec(compile(code, "README.md", "exec"), {"Moments": Moments})
    assert (tmp_path / "run" / "model.npz").exists()


PAGES = [
    "README.md",
    "CHANGELOG.md",
    *(str(page.relative_to(ROOT)) for page in sorted(ROOT.glob("docs/**/*.md"))),
]


@pytest.mark.parametrize("page", PAGES)
def test_pages_link_to_files_that_exist(page):
    text = (ROOT / page).read_text()
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / page).parent.joinpath(link).exists(), link
