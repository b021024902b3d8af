"""The numbers of the house, counted on small packages in which they are known."""

import json
import shutil
from textwrap import dedent

import pytest

from tools import measure

RUN = """\
        total = 0
        for value in values:
            total += value
            total *= 2
        total -= 1
        return total
"""


@pytest.fixture
def numbers(tmp_path):
    """A function that writes files into a package and measures it."""

    def write_and_measure(**files: str) -> dict[str, float]:
        package = tmp_path / "src" / "itofit"
        for name, text in ({"__init__": ""} | files).items():
            path = package / f"{name.replace('__in__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(text), "utf-8")
        return measure.measure(tmp_path)

    return write_and_measure


def test_code_lines_are_neither_blank_nor_comment_nor_docstring(numbers):
    counted = numbers(
        a='''\
        """A module
        of two lines."""

        # A comment.
        x = 1  # code


        def f(y):
            """One line."""
            text = """not a

            docstring"""
            return text
        '''
    )
    assert counted["files"] == 2
    assert counted["code lines"] == 5
    # x = 1; def f ( y ) :; text = "..."; return text
    assert counted["tokens a code line"] == (3 + 6 + 3 + 2) / 5


def test_an_f_string_is_one_token(numbers):
    assert numbers(a='x = f"{1 + 2} and {y!r} {f(3)}"\n')["tokens a code line"] == 3


def test_lengths_of_functions_leave_docstrings_out(numbers):
    body = "\n".join(f"    x{i} = {i}" for i in range(50))
    counted = numbers(
        a=f'def long():\n    """Two\n    lines."""\n{body}\n',
        b="def short():\n    return 1\n" * 8 + f"def f(\n    a,\n):\n{body[: 10 * 11]}\n",
    )
    # Lengths: eight of 2, one of 3 + 10, one of 51.
    assert counted["function length, median"] == 2
    assert counted["function length, p90"] == 13
    assert counted["functions over 50 lines"] == 1


def test_arguments_are_counted_without_self_and_stars(numbers):
    counted = numbers(
        a="""\
        def eight(a, b, /, c, d, *, e, f, g, h): ...
        def seven(a, b, c, d, e, f, g, *args, **kwargs): ...
        class A:
            def seven(self, a, b, c, d, e, f, g): ...
            @classmethod
            def eight(cls, a, b, c, d, e, f, g, h): ...
        """
    )
    assert counted["functions of 8 and more arguments"] == 2


def test_overrides_are_followed_through_imports(numbers):
    counted = numbers(
        base="""\
        import abc
        class Base(abc.ABC):
            @abc.abstractmethod
            def abstract(self): ...
            def concrete(self): ...
            @property
            def size(self): ...
            def __call__(self): ...
        """,
        room__in____init__="from itofit.base import Base as Root\n",
        room__in__middle="""\
        from itofit.room import Root
        class Middle(Root):
            def abstract(self): ...  # implements
            def own(self): ...
        """,
        leaf="""\
        import itofit.base
        from itofit.room import middle as halfway
        class Leaf(halfway.Middle):
            def abstract(self): ...  # overrides Middle
            def concrete(self): ...  # overrides Base
            def other(self): ...
            def __call__(self): ...
        class Other(itofit.base.Base):
            @property
            def size(self): ...  # overrides Base
        class Error(ValueError):
            def with_traceback(self, tb): ...  # no class of the package
        """,
    )
    assert counted["overridden concrete methods"] == 3


def test_a_class_may_take_the_name_of_its_base(numbers):
    text = "from itofit.a import A\nclass A(A):\n    def f(self): ...\n"
    counted = numbers(a="class A:\n    def f(self): ...\n", b=text)
    assert counted["overridden concrete methods"] == 1


def test_shapes_of_statements(numbers):
    counted = numbers(
        a=f"""\
        a, b = 1, 2
        a, b = pair
        c = 1, 2
        (a, b), c = pair, 3
        f(**options)
        f(**options, **more)
        f(**g())
        both = {{**options}}
        # {"x" * 99}
        # {"x" * 98}
        """
    )
    assert counted["tuple-to-tuple assignments"] == 2
    assert counted["calls that unpack a **name"] == 2
    assert counted["lines over 100 characters"] == 1


def test_returned_tuples_of_more_than_two(numbers):
    counted = numbers(
        a="""\
        def three() -> tuple[int, int, int]: ...
        def some() -> list[tuple[int, str, int]] | None: ...
        def two() -> tuple[int, int]: ...
        def many() -> tuple[int, ...]: ...
        def array() -> Float[Array, "n d", 3]: ...
        """
    )
    assert counted["returned tuples of more than two"] == 2


def test_names_that_say_nothing_are_counted_where_they_are_given(numbers):
    counted = numbers(
        a="""\
        found = 1
        for kept in range(3):
            print(found, kept)
        def f(how, *, share=found, weights=1): ...
        f(how=1)
        f.moved = 2
        """
    )
    assert counted["names that say nothing"] == 4


def test_cycles_of_rooms_need_not_be_cycles_of_files(numbers):
    counted = numbers(
        one__in____init__="",
        one__in__a="from itofit.two import b\n",
        one__in__c="x = 1\n",
        two__in____init__="",
        two__in__b="from itofit.one.c import x\n",
    )
    assert counted["import cycles between rooms"] == 1
    assert counted["import cycles between files"] == 0


def test_cycles_of_files_are_counted_within_a_room(numbers):
    counted = numbers(
        room__in____init__="from itofit.room.a import x\n",
        room__in__a="try:\n    import itofit.room.b\nexcept ImportError:\n    pass\n",
        room__in__b="from itofit.room import x\n",
    )
    assert counted["import cycles between rooms"] == 0
    assert counted["import cycles between files"] == 1


def test_imports_for_types_or_inside_functions_make_no_cycle(numbers):
    counted = numbers(
        a="import itofit.b\nimport itofit.c\n",
        b="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from itofit.a import x\n",
        c="def f():\n    from itofit.a import x\n",
    )
    assert counted["import cycles between files"] == 0


def test_a_duplicated_run_is_one_pair_however_long(numbers):
    apart = "# a comment\n\n        total -= 1"
    counted = numbers(
        a="def f(values):\n" + RUN,
        b="import os\ndef g(values, more):\n" + RUN.replace("total -= 1", apart),
    )
    assert counted["duplicated runs, pairs"] == 1


def test_runs_of_five_lines_or_on_themselves_are_no_duplicates(numbers):
    five = RUN.replace("total -= 1", "total -= 3")
    counted = numbers(a="def f(values):\n" + RUN, b="def g(values):\n" + five, c="x += 1\n" * 9)
    assert counted["duplicated runs, pairs"] == 0


def test_three_places_are_three_pairs(numbers):
    files = {name: f"def {name}(values):\n" + RUN for name in "abc"}
    assert numbers(**files)["duplicated runs, pairs"] == 3


def test_the_command_prints_a_column_a_root_and_writes_the_numbers(numbers, tmp_path, capsys):
    expected = numbers(a="x = 1\n")
    file = tmp_path / "numbers.json"
    other = tmp_path / "other"
    shutil.copytree(tmp_path / "src", other / "src")
    (other / "src" / "itofit" / "b.py").write_text("y = 2\n")
    roots = [str(tmp_path), str(other)]
    assert measure.main([*roots, "--json", str(file)]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == roots
    assert [row.split("  ")[0] for row in rows] == list(measure.ROWS)
    assert rows[0].split() == ["files", "2", "3"]
    written = json.loads(file.read_text())
    assert list(written) == roots
    assert written[roots[0]] == expected


def test_a_folder_that_is_no_checkout_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        measure.main([str(tmp_path)])
    assert "no src/itofit" in capsys.readouterr().err


def test_an_empty_package_has_numbers(numbers):
    assert set(numbers().values()) <= {0, 1}
