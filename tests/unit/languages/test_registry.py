"""The table of languages: found by every name, agreeing with the risk analysis, and turned into what to run."""

from __future__ import annotations

from collections import Counter

import pytest

from ringfence.errors import InvalidArgument
from ringfence.languages import LANGUAGES, Language, find, invocation
from ringfence.languages.registry import CODE, LONGEST_INLINE
from ringfence.policy.risk import assess

ANALYSED_ONLY = {"jsx", "tsx"}
"""Node cannot run these."""


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.name)
def test_a_language_is_found_by_each_of_its_names_in_any_case(language: Language) -> None:
    for name in (language.name, *language.aliases):
        assert find(name) is find(f" {name.upper()} ") is language


def test_no_name_stands_for_two_languages() -> None:
    names = Counter(name for language in LANGUAGES for name in (language.name, *language.aliases))

    assert {name: count for name, count in names.items() if count > 1} == {}


def test_the_risk_analysis_knows_the_same_languages_by_the_same_names() -> None:
    known = {name: find(name) for name in (*assess.LANGUAGES, *assess._ALIASES) if name not in ANALYSED_ONLY}

    for alias, name in assess._ALIASES.items():
        assert known[alias] is known[name]
    for language in set(known.values()):
        names = {language.name, *language.aliases}
        assert names == {name for name, found in known.items() if found is language}


@pytest.mark.parametrize(
    ("name", "nearest"), [("pyhton", "python"), ("typscript", "typescript"), ("Pearl", "perl"), ("cobol", None)]
)
def test_an_unknown_language_is_refused_with_the_nearest_and_all(name: str, nearest: str | None) -> None:
    with pytest.raises(InvalidArgument) as caught:
        find(name)

    assert all(language.name in caught.value.hint for language in LANGUAGES)
    assert ("did you mean" in caught.value.hint) is (nearest is not None)
    assert nearest is None or f"did you mean {nearest!r}?" in caught.value.hint


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.name)
def test_a_row_is_complete(language: Language) -> None:
    assert language.programs and language.install
    assert not language.inline or language.inline[-1].endswith(CODE)


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.name)
def test_long_code_goes_to_standard_input(language: Language) -> None:
    code = "x = 1;" + " " * LONGEST_INLINE

    made = invocation(language, code, "/usr/bin/it")

    assert made.argv[0] == "/usr/bin/it"
    assert made.stdin is not None and code.encode() in made.stdin
    assert max(map(len, made.argv)) < 100


@pytest.mark.parametrize("code", ["", "a\0b"], ids=["nothing", "a zero"])
@pytest.mark.parametrize("name", ["python", "javascript", "bash"])
def test_code_that_no_argument_can_hold_goes_to_standard_input(name: str, code: str) -> None:
    made = invocation(find(name), code, "it")

    assert made.stdin == code.encode()
    assert code not in made.argv[1:]


@pytest.mark.parametrize(
    ("name", "code", "argv"),
    [
        ("python", "print(1)", ("it", "-c", "print(1)")),
        ("js", "-1", ("it", "--input-type=commonjs", "--eval=-1")),
        ("js", "await 1", ("it", "--input-type=module", "--eval=await 1")),
        ("ts", "let a: T", ("it", "--input-type=commonjs", "--eval=let a   ")),
        ("sh", "-x", ("it", "-c", "--", "-x")),
        ("perl", "{code}", ("it", "-e", "{code}")),
        ("lua", "--[[ä]]", ("it", "-e", "--[[ä]]")),
    ],
)
def test_short_code_is_an_argument_and_leaves_standard_input(name: str, code: str, argv: tuple[str, ...]) -> None:
    made = invocation(find(name), code, "it")

    assert made.argv == argv
    assert made.stdin is None


@pytest.mark.parametrize(
    ("code", "piped"),
    [("echo 1;", "<?php echo 1;"), ("<?php echo 1;", "<?php echo 1;"), ("\n<h1><?= 1 ?></h1>", "\n<h1><?= 1 ?></h1>")],
)
def test_php_is_piped_with_one_opening_tag(code: str, piped: str) -> None:
    made = invocation(find("php"), code, "php")

    assert made.argv == ("php",)
    assert made.stdin == piped.encode()


def test_code_that_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="surrogate") as caught:
        invocation(find("python"), "a\n'\ud800'", "python3")

    assert caught.value.line == 2


def test_typescript_that_cannot_be_erased_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="1:1"):
        invocation(find("ts"), "export = 1", "node")
