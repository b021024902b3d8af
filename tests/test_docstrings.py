"""The reference is made of docstrings: every public name has one, and it tells of every parameter.

Public is what `itofit`, `itofit.metrics`, `itofit.plot` and `itofit.datasets` export, with the
public methods of classes, and what the questions to a fitted process return.
"""

import enum
import functools
import inspect
import re
from typing import NamedTuple, NoReturn

import pytest

import itofit
import itofit.datasets
import itofit.metrics
import itofit.plot

MODULES = (itofit, itofit.metrics, itofit.plot, itofit.datasets)
# Exported, but never made by hand: fields may be told in prose, `name` in backticks.
RESULTS = (itofit.LeftOut, itofit.Scorecard, itofit.metrics.Score, itofit.metrics.Floor)
# What these return is a result as well.
QUESTIONS = (itofit.FokkerPlanckProcess, itofit.compare)
NAMES = re.compile(r"(\*{0,2}\w+)(, \*{0,2}\w+)*( *:.*)?")


class Public(NamedTuple):
    """A public object, how a user names it, and its docstring."""

    name: str
    value: object
    text: str


def is_ours(value):
    return getattr(value, "__module__", "").partition(".")[0] == "itofit"


def exported():
    """What the modules export; the same object under two names is one."""
    by_object = {}
    for module in MODULES:
        for name, value in vars(module).items():
            public = not name.startswith("_") and not inspect.ismodule(value) and is_ours(value)
            if public and id(value) not in by_object:
                text = value.__doc__ or ""
                by_object[id(value)] = Public(f"{module.__name__}.{name}", value, text)
    return list(by_object.values())


def members(kind):
    """Public methods and properties that are written in itofit, inherited ones with them.

    One without a docstring has that of the method it overrides.
    """
    for name in dir(kind):
        written = [
            vars(base)[name] for base in kind.__mro__ if name in vars(base) and is_ours(base)
        ]
        written = [unbound(value) for value in written]
        if name.startswith("_") or not written:
            continue
        if inspect.isfunction(written[0]) or is_property(written[0]):
            text = next((value.__doc__ for value in written if value.__doc__), "")
            yield Public(name, written[0], text)


def unbound(value):
    return value.__func__ if isinstance(value, classmethod | staticmethod) else value


def is_property(value):
    return isinstance(value, property | functools.cached_property)


def results(names):
    """Classes of what the questions return, other than those exported."""
    known = {id(public.value) for public in names}
    functions = []
    for question in QUESTIONS:
        if inspect.isclass(question):
            functions += [member.value for member in members(question)]
        else:
            functions.append(question)
    for function in filter(inspect.isfunction, functions):
        kind = inspect.signature(function).return_annotation
        if inspect.isclass(kind) and is_ours(kind) and id(kind) not in known:
            known.add(id(kind))
            yield Public(f"{kind.__module__}.{kind.__name__}", kind, kind.__doc__ or "")


def sections(text):
    """The body of every section of a docstring, by its heading."""
    lines = inspect.cleandoc(text).splitlines()
    bodies = {}
    heading = "Summary"
    for i, line in enumerate(lines):
        below = lines[i + 1] if i + 1 < len(lines) else ""
        if line and below == "-" * len(line):
            heading = line
        elif line != "-" * max(3, len(line)):
            bodies.setdefault(heading, []).append(line)
    return bodies


def described(text, *headings):
    """Names that these sections of a docstring describe."""
    names = set()
    for heading in headings:
        for line in sections(text).get(heading, []):
            if NAMES.fullmatch(line):
                names |= set(re.findall(r"\*{0,2}\w+", line.partition(":")[0]))
    return names


def parameters(value):
    """Names in the signature, with their stars."""
    stars = {
        inspect.Parameter.VAR_POSITIONAL: "*",
        inspect.Parameter.VAR_KEYWORD: "**",
    }
    given = inspect.signature(value).parameters.values()
    return [stars.get(p.kind, "") + p.name for p in given if p.name not in ("self", "cls")]


def has_summary(text):
    return bool("".join(sections(text).get("Summary", [])).strip())


def faults_of_parameters(text, names):
    told = described(text, "Parameters")
    yield from (f"{name} is not described" for name in names if name not in told)
    yield from (f"{name} is described but no parameter" for name in sorted(told - set(names)))


def faults_of_function(function, is_result):
    """Of a result, what a method without parameters returns may be told by its summary."""
    if not has_summary(function.text):
        yield "no docstring"
        return
    if is_property(function.value):
        return
    names = parameters(function.value)
    yield from faults_of_parameters(function.text, names)
    returns = inspect.signature(function.value).return_annotation
    nothing = returns in (None, NoReturn, inspect.Signature.empty)
    if not (nothing or "Returns" in sections(function.text) or (is_result and not names)):
        yield "no Returns section"


def faults_of_class(kind, is_result):
    # A dataclass without a docstring is given its signature for one.
    if not has_summary(kind.text) or kind.text.startswith(f"{kind.value.__name__}("):
        yield "no docstring"
        return
    if issubclass(kind.value, enum.Enum | BaseException) and not is_ours(kind.value.__init__):
        return
    names = parameters(kind.value)
    if not is_result:
        yield from faults_of_parameters(kind.text, names)
        return
    told = described(kind.text, "Parameters", "Attributes")
    told |= set(re.findall(r"`(\w+)`", kind.text))
    yield from (f"{name} is not described" for name in names if name not in told)


def faults(public, is_result):
    if not inspect.isclass(public.value):
        for fault in faults_of_function(public, is_result):
            yield f"{public.name}: {fault}"
        return
    for fault in faults_of_class(public, is_result):
        yield f"{public.name}: {fault}"
    for member in members(public.value):
        for fault in faults_of_function(member, is_result):
            yield f"{public.name}.{member.name}: {fault}"


def test_every_public_name_says_what_it_is_and_takes():
    wrong = []
    for public in exported():
        wrong += faults(public, is_result=public.value in RESULTS)
    for public in results(exported()):
        wrong += faults(public, is_result=True)
    assert not wrong, f"{len(wrong)} faults\n" + "\n".join(wrong)


# The reader of docstrings itself


def shown(a, *rest, b=1, **more) -> int:
    """Show.

    Parameters
    ----------
    a, b : int
        Numbers.
    *rest
        Others.
    **more
        Words.

    Returns
    -------
    int
        One.
    """
    return 1


def test_a_whole_docstring_has_no_faults():
    assert list(faults_of_function(Public("shown", shown, shown.__doc__), is_result=False)) == []
    assert parameters(shown) == ["a", "*rest", "b", "**more"]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (("a, b : int", "a : int"), "b is not described"),
        (("**more", "**most"), "**more is not described"),
        (("*rest", "rest"), "*rest is not described"),
        (("a, b : int", "a, b, c : int"), "c is described but no parameter"),
        (("Returns\n    -------", ""), "no Returns section"),
        (("Show.", ""), "no docstring"),
    ],
)
def test_faults_are_seen(change, fault):
    text = shown.__doc__.replace(*change)
    assert text != shown.__doc__
    assert fault in list(faults_of_function(Public("shown", shown, text), is_result=False))


def test_a_class_is_read_by_its_constructor_and_a_result_by_its_fields():
    class Kind:
        """A kind of `thing`."""

        def __init__(self, thing):
            self.thing = thing

    kind = Public("Kind", Kind, Kind.__doc__)
    assert list(faults_of_class(kind, is_result=False)) == ["thing is not described"]
    assert list(faults_of_class(kind, is_result=True)) == []


def test_what_is_public_is_found():
    names = {public.name: public.value for public in exported()}
    assert names["itofit.load"] is itofit.load
    assert names["itofit.plot.descent"] is itofit.plot.descent
    assert {"fit", "drift", "process_", "predict_from", "load"} <= {
        member.name for member in members(itofit.FokkerPlanckProcess)
    }
    assert "get_metadata_routing" not in {
        member.name for member in members(itofit.FokkerPlanckProcess)
    }
    assert "Identifiability" in {public.value.__name__ for public in results(exported())}
