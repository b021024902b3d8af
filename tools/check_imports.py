"""The import rule of the house: a file imports only from its own room or from rooms to its left."""

import ast
import sys
from pathlib import Path

ROOMS = [
    "errors", "version", "whole_file", "arrays", "snapshots", "process", "simulate", "weak",
    "datasets", "transport", "problem", "solution", "devices", "compiled", "solve", "bridge",
    "moments", "adversarial", "forecast", "ways", "judge", "solvers", "metrics", "trust",
    "run_folder", "face", "process_face", "baselines", "estimator", "left_out", "plot", "cli",
]  # fmt: skip
# Left of `plot` nothing but these may be imported at the top of a file.
CORE = {
    "jax", "equinox", "optax", "jaxtyping", "numpy", "scipy", "sklearn", "threadpoolctl", "itofit",
    *sys.stdlib_module_names,
}  # fmt: skip


def room_of(path: Path, root: Path) -> str:
    """The room a file lives in."""
    return path.relative_to(root).parts[0].removesuffix(".py")


def faults(path: Path, root: Path) -> list[str]:
    """Imports of this file that break the rule."""
    room = room_of(path, root)
    if room == "__init__":
        return []
    found = []
    tree = ast.parse(path.read_text())
    top = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            package, _, rest = name.partition(".")
            target = rest.split(".")[0]
            if package == "itofit" and (
                target not in ROOMS or ROOMS.index(target) > ROOMS.index(room)
            ):
                found.append(f"{path}:{node.lineno}: {room} must not import {name}")
            elif (
                package not in CORE and id(node) in top and ROOMS.index(room) < ROOMS.index("plot")
            ):
                found.append(
                    f"{path}:{node.lineno}: {name} is not a core dependency; import it where it is "
                    "used"
                )
    return found


def main() -> int:
    """Check the package; prints every fault."""
    root = Path(__file__).parent.parent / "src" / "itofit"
    broken = [fault for path in sorted(root.rglob("*.py")) for fault in faults(path, root)]
    print("\n".join(broken) or "imports point left")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
