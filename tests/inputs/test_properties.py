"""Whatever a file or a word holds, it is accepted, or refused in one line of ours, and soon."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biasbed import cli, record
from biasbed.errors import REFUSALS, WRONG_PATHS, Failure, UsageError, format_error, to_one_line
from biasbed.networks import backbones
from biasbed.settings import Spec, check, specs
from biasbed.studies.cells import expand_cells
from biasbed.studies.study_table import parse_seeds
from biasbed.training.resolve import resolve
from inputs.arbitrary import KINDS, Kind

DRAWN = settings(max_examples=50)


def settled(read: Callable[[], object]) -> bool:
    """Return True if the input is accepted; fails for a refusal that is no line of ours."""
    try:
        read()
    except (UsageError, Failure) as error:
        (line,) = format_error(error).splitlines()
        assert len(line) > 10
        assert line.isprintable()
        return False
    except (OSError, RuntimeError) as error:
        # These alone are said in a line by `cli.main`.
        if str(error) != cli.NO_HOME and getattr(error, "errno", None) not in REFUSALS | WRONG_PATHS:
            raise
        return False
    return True


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_right_file_is_read(kind: Kind, tmp_path: Path) -> None:
    (tmp_path / kind.name).write_bytes(kind.right)
    assert settled(lambda: kind.read(tmp_path / kind.name))


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_any_file_is_read_or_refused(kind: Kind, tmp_path: Path) -> None:
    refused = 0

    @DRAWN
    @given(content=kind.contents())
    def holds(content: bytes) -> None:
        nonlocal refused
        (tmp_path / kind.name).write_bytes(content)
        refused += not settled(lambda: kind.read(tmp_path / kind.name))

    holds()
    assert refused > 10, "what is drawn is hardly ever wrong"


IRREGULAR: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a link to an endless device": lambda path: path.symlink_to("/dev/zero"),
    "40 GB of nothing": lambda path: (path.touch(), os.truncate(path, 40 * 2**30)),
}


@pytest.mark.parametrize("make", IRREGULAR.values(), ids=IRREGULAR)
@pytest.mark.parametrize("kind", [kind for kind in KINDS.values() if not kind.name.startswith("in.")])
def test_a_file_that_has_no_end_is_refused_before_it_is_read(
    kind: Kind, make: Callable[[Path], object], tmp_path: Path
) -> None:
    """A pipe would be waited for without end: the time limit of these tests ends that."""
    make(tmp_path / kind.name)
    tracemalloc.start()
    try:
        assert not settled(lambda: kind.read(tmp_path / kind.name))
        assert tracemalloc.get_traced_memory()[1] < 200 * 2**20
    finally:
        tracemalloc.stop()


WORDS = [
    "none",
    "auto",
    "NONE",
    " ",
    ",",
    ",,",
    "1,",
    "nan",
    "inf",
    "-inf",
    "1e999",
    "0x10",
    "1_0",
    "٣",
    "true",
    "0..9",
]
TEXTS = st.text(max_size=12) | st.sampled_from([*WORDS, "9" * 400])


def _settings() -> dict[str, Spec]:
    """Return every setting of every command, by command and name."""
    return {
        f"{name}: {key}": spec
        for name, entry_point in cli.COMMANDS.items()
        for key, spec in entry_point.settings().items()
    }


@DRAWN
@given(spec=st.sampled_from(list(_settings().values())), word=TEXTS)
def test_any_word_of_any_setting(spec: Spec, word: str) -> None:
    settled(lambda: check(spec, word))


NAMES = st.sampled_from(sorted({spec.name for spec in _settings().values()})) | st.text(max_size=8)


@DRAWN
@given(
    command=st.sampled_from(list(cli.COMMANDS)),
    words=st.lists(TEXTS | NAMES.map("--{}".format) | st.builds("--{}={}".format, NAMES, TEXTS), max_size=5),
)
def test_any_words_of_any_command(command: str, words: list[str]) -> None:
    help_words = {"-h", "--help"} & set(words)
    if not help_words:
        settled(lambda: cli.parse(command, words))


@DRAWN
@given(flags=st.dictionaries(st.sampled_from(sorted(specs(cli.Config))), TEXTS, max_size=3))
def test_any_settings_of_a_training(flags: dict[str, str]) -> None:
    settled(lambda: resolve({**flags, "suite": "demo"}))


@DRAWN
@given(
    value=TEXTS | st.lists(st.integers() | TEXTS, max_size=4) | st.integers() | st.none(),
    word=TEXTS,
)
def test_any_seeds_cells_names_and_addresses(value: object, word: str) -> None:
    settled(lambda: parse_seeds(value))
    settled(lambda: expand_cells({"suite": "debiasing", "data.severity": word, "train": word}, {}))
    settled(lambda: backbones.resolve(word))
    assert record.slug(word) == record.slug(record.slug(word)) != ""
    record.parse_metric(word)


@DRAWN
@given(text=st.text())
def test_any_message_is_a_line(text: str) -> None:
    assert to_one_line(text).isprintable()
    assert (to_one_line(text) == text) == text.isprintable()
