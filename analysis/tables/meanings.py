"""Meaning of a column of scores (of a row in a turned table): data set, block, measure, split, direction."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from biasbed.analysis.tables import vocabulary as say
from biasbed.analysis.tables.known_sets import find_known, is_part, title_of
from biasbed.analysis.tables.markup import without_citation
from biasbed.errors import UsageError
from biasbed.settings import nearest

ONE_SET = "one data set"  # that the table does not name
# Columns that are named by numbers: shares of training data, shots, numbered domains; and classes by their frequency.
_LEVEL = re.compile(
    r"[a-zε]\s*=\s*[0-9.]+(?:/[0-9]+)?|[0-9.]+\s*%|1\s*/\s*[0-9]+(?:\s*\([^()]*\))?|"
    r"[0-9.]+[- ](?:cases?|labels?|samples|images|examples|tasks|phases?|steps|sessions|splits)|"
    r"(?:many|med(?:ium)?|few)(?:[- ]shot)?",
    re.I,
)
# Ends of names that say how a data set is used: `k-NN`, `linear probe`, `5-way 1-shot`, `(5,1)`.
_USE = re.compile(
    r"(.*\w)\W+((?:k-?nn|linear(?:[- ]prob(?:e|ing))?|(?:full )?fine-?tun(?:ed?|ing)|zero-?shot|few-?shot|online|"
    rf"offline|[it](?:→|->|2|-to-)[it]|(?:image|text)(?:-to-|→|2)(?:image|text)(?: retrieval)?|{say.SHOTS})|"
    r"[0-9]+\s*,\s*[0-9]+)\W*",
    re.I,
)


@dataclass(frozen=True)
class Meaning:
    """Data set, measure and split of the scores of one column."""

    dataset: str = ""
    metric: str = ""
    block: str = ""  # the data set that it is a part of
    split: str = ""  # val, train or test, if the table says it
    variant: str = ""  # backbone or setting that tells it from another
    direction: str = ""  # yes, no, or nothing

    @property
    def name(self) -> str:
        """Name in one line."""
        name = self.dataset or self.metric or self.split
        return f"{name} [{self.variant}]" if self.variant else name


def find_meanings(paths: Sequence[tuple[str, ...]], hint: str = "") -> tuple[list[Meaning], list[str]]:
    """Return what each column stands for, by the names above it, and notes. hint: words around the table."""
    notes: list[str] = []
    depth = max(map(len, paths), default=0)
    aligned = [("",) * (depth - len(path)) + path for path in paths]
    kinds = [_kind_of_level([path[level] for path in aligned], is_last=level == depth - 1) for level in range(depth)]
    if kinds[-2:] == ["name", "name"] and len({path[-1] for path in aligned}) == 1 < len(aligned):
        kinds[-1] = "none"  # one text below all names tells nothing apart
    if "name" not in kinds and "metric" not in kinds:
        kinds = ["name" if kind == "setting" else kind for kind in kinds]
    meanings = []
    for path in aligned:
        meanings.append(_meaning(path, kinds))
    meanings = _split_compounds(meanings)
    meanings = _with_blocks(meanings, hint, notes)
    return [_with_direction(meaning, path) for meaning, path in zip(meanings, paths, strict=True)], notes


def _kind_of_level(texts: Sequence[str], is_last: bool) -> str:
    """Return what the names of one line of the head are."""
    distinct = list(dict.fromkeys(text for text in texts if text))
    if not distinct:
        return "none"
    if all(map(say.split_kind, distinct)) and not any(map(say.is_metric, distinct)):
        return "split"
    if all(map(say.is_shots, distinct)):
        return "setting"
    share = sum(say.is_metric(text) or bool(say.average_kind(text)) for text in distinct) / len(distinct)
    if share >= 0.7 or (share >= 0.4 and len(texts) > 2 * len(distinct)):
        return "metric"
    if len(distinct) == 1 and say.letters(distinct[0]) in say.GENERIC:
        return "none"
    if not is_last and all(
        say.BACKBONES.search(text) and not say.OF_DATA.search(_without_backbone(text)) for text in distinct
    ):
        return "variant"
    return "name"


def _without_backbone(text: str) -> str:
    """Return a name without what its backbone was pretrained on."""
    return re.split(r"\b(?:pre-?trained|trained|init)", text, flags=re.I)[0]


def _meaning(path: Sequence[str], kinds: Sequence[str]) -> Meaning:
    """Return the meaning of a path, level by level."""
    names: list[str] = []
    metric = split = variant = ""
    for text, kind in zip(path, kinds, strict=True):
        if not text:
            continue
        if kind == "metric":
            metric = say.without_arrow(text) if not metric else f"{metric} {say.without_arrow(text)}"
        elif kind == "split":
            split = say.split_kind(text)
        elif kind == "variant":
            variant = text
        elif kind == "name":
            names.append(without_citation(say.without_arrow(text)))
    names = [name for name in names[:-1] if say.letters(name) not in say.GENERIC] + names[-1:]
    if len(names) > 1 and say.average_kind(names[0]) == "sure":
        names = [" ".join(names)]
    block = ""
    dataset = names[-1] if names else ""
    if len(names) > 1:
        block = names[0]
        dataset = " ".join(names[1:])
    return Meaning(dataset, metric, block, split, variant)


def _split_compounds(meanings: Sequence[Meaning]) -> list[Meaning]:
    """Return the meanings with names like `test/acc_pacs`, `PACS/Art` and `STS-B (Pearson)` taken apart."""
    names = [meaning.dataset for meaning in meanings]
    machine = (
        all(re.fullmatch(r"[\w./@-]+", name) for name in names if name) and len([name for name in names if name]) > 1
    )
    full_names = {name.casefold() for name in names}
    has_precision = {"p", "r"} <= full_names and any(map(re.compile(r"F-?[0-9.]+").match, names))
    of_conditions = all(map(_is_measure_on_condition, names))
    shared = _shared_measures([name for name in names if not say.is_metric(name)])
    in_three = _find_three_words(names)
    result = []
    for meaning in meanings:
        if meaning.metric and not meaning.dataset:
            result.append(_split_of_metric(replace(meaning, dataset=meaning.metric)))
            continue
        if meaning.metric or not meaning.dataset:
            result.append(meaning)
            continue
        if meaning.dataset in in_three:
            block, metric, part = in_three[meaning.dataset]
            result.append(replace(meaning, block=block, metric=metric, dataset=part))
            continue
        condition = _BRACKETED.fullmatch(meaning.dataset) if of_conditions else None
        if condition is not None and not meaning.metric:
            result.append(replace(meaning, dataset=condition[2], metric=condition[1]))
            continue
        if has_precision and meaning.dataset in ("P", "R"):
            result.append(replace(meaning, metric=meaning.dataset, dataset="", direction="yes"))
            continue
        parts_of_name = _bracketed_metric(meaning, full_names)
        if _is_only_measure(meaning.dataset, full_names, shared) and parts_of_name is None:
            result.append(_split_of_metric(meaning))
            continue
        if parts_of_name is None and machine:
            parts_of_name = _machine_name(meaning)
        if parts_of_name is None:
            parts_of_name = _spaced_split(meaning, shared)
        result.append(parts_of_name)
    return _blocks_of_slashes(result)


def _find_three_words(names: Sequence[str]) -> dict[str, list[str]]:
    """Return names like `flickr recall@1 de` as data set, measure and part, if several parts have both."""
    in_three = {}
    for name in names:
        spoken = name.split(" ")
        if len(spoken) == 3 and _is_sure_measure(spoken[1], set()) and not say.is_metric(" ".join(spoken[:2])):
            in_three[name] = spoken
    counts = Counter((block, metric) for block, metric, _ in in_three.values())
    return {name: spoken for name, spoken in in_three.items() if counts[spoken[0], spoken[1]] > 1}


def _is_measure_on_condition(name: str) -> bool:
    """Return True for a name like `F1 [attacked data]`, whose brackets say what was measured on."""
    match = _BRACKETED.fullmatch(name)
    is_measure = match is not None and say.is_metric(match[1]) and not say.is_metric(name)
    return match is not None and is_measure and "=" not in match[2] and any(map(str.isalpha, match[2]))


def _split_of_metric(meaning: Meaning) -> Meaning:
    """Return a column that is named by a measure alone; words of validation or training in it are its split."""
    spoken = set(say.split_words(meaning.dataset))
    split = ""
    for name, vocabulary in (("train", say.TRAINING), ("val", say.VALIDATION), ("test", {"test", "testing"})):
        if spoken & vocabulary:
            split = name
    return replace(meaning, metric=meaning.dataset, dataset="", split=meaning.split or split)


_BRACKETED = re.compile(r"(.+?)\s*[(\[]\s*([^()\[\]]+?)\s*[)\]]\s*")


def _bracketed_metric(meaning: Meaning, full_names: Set[str]) -> Meaning | None:
    """Return `STS-B (Pearson)` as a data set and its measure; None for other names.

    full_names: names of all columns. `Best (top-5)` beside `Best` is one, too, though all of its words are measures'.
    """
    match = _BRACKETED.fullmatch(meaning.dataset)
    if match is None or not say.is_metric(match[2]) or say.is_metric(match[1]):
        return None
    if say.is_metric(meaning.dataset) and match[1].casefold() not in full_names:
        return None
    return replace(meaning, dataset=match[1], metric=match[2])


def _is_only_measure(name: str, full_names: Set[str], shared: Set[str]) -> bool:
    """Return True for a measure without a data set: `Top-1`, `mIoU (flip)` beside `mIoU`, `Err, adapted`."""
    if say.is_metric(name):
        return not _is_named_by_letters(name, shared)
    match = _BRACKETED.fullmatch(name)
    measure, comma, remark = name.partition(",")
    if match is not None and say.is_metric(match[1]) and ("=" in match[2] or match[1].casefold() in full_names):
        return True
    return bool(comma) and say.is_metric(measure) and not say.OF_DATA.search(remark)


def _machine_name(meaning: Meaning) -> Meaning | None:
    """Return a logged metric's name, such as `test/acc_pacs` or `art_painting_acc`, as data set, measure and split."""
    parts = re.split(r"([/_.]|(?<=[a-z])-(?=[a-z]))", meaning.dataset)
    kept, metric, split = [], [], ""
    for part in parts:
        word = part.lower()
        if word in say.VALIDATION:
            split = "val"
        elif word in say.TRAINING:
            split = "train"
        elif word in ("test", "eval"):
            split = "test"
        elif word in (say.HIGHER | say.LOWER) - {"r", "p", "top", "em", "worst", "match", "cd", "aa"}:
            metric.append(part)
        else:
            kept.append(part)
    dataset = re.sub(r"^[/_.-]+|[/_.-]+$", "", re.sub(r"([/_.-])[/_.-]+", r"\1", "".join(kept)))
    dataset = re.sub(r"^(?:metrics?)[/_.]", "", dataset)
    is_plain = dataset.lower() in say.OF_RUNS | {"", "best", "final", "last", "top", "max"}
    if is_plain or not (metric or split):
        return None
    return replace(meaning, dataset=dataset, metric="_".join(metric), split=meaning.split or split)


def _spaced_split(meaning: Meaning, shared: Set[str]) -> Meaning:
    """Return `CIFAR-10 val` as a data set and its split, and `CIFAR-10 top1 Acc.` as one and its measure.

    shared: last words of several heads, which are measures even if names of data sets have them, too.
    """
    spoken = _without_percent(meaning.dataset).split()
    if len(spoken) > 1:
        first = next(iter(say.split_words(spoken[0])), "")
        for split, vocabulary in (("val", say.VALIDATION), ("train", say.TRAINING), ("test", {"test"})):
            if first in vocabulary:
                meaning = replace(meaning, split=split)
        last = say.split_words(spoken[-1])
        if len(last) == 1 and last[0] in say.VALIDATION | say.TRAINING:
            return replace(meaning, split="val" if last[0] in say.VALIDATION else "train")
        for start in range(1, len(spoken)):
            measure = re.sub(r"[()]", "", " ".join(spoken[start:]))
            is_within = "(" in spoken[start - 1] and ")" not in spoken[start - 1]  # `DROP (3-shot F1)`
            if _is_sure_measure(spoken[start].strip("()"), shared) and say.is_metric(measure) and not is_within:
                names = spoken[:start]
                if start > 1 and say.average_kind(names[-1]) == "sure":  # `CUB mean accuracy`
                    measure = f"{names.pop()} {measure}"
                return replace(meaning, dataset=" ".join(names), metric=measure)
    only = say.split_kind(meaning.dataset)
    if only in ("val", "train"):
        return replace(meaning, split=only)
    return meaning


def _is_sure_measure(word: str, shared: Set[str]) -> bool:
    """Return True for a word of measures that names of data sets don't have."""
    is_clear = word.lower() in shared or word.lower() not in say.AMBIGUOUS | {"k"}
    return is_clear and say.is_metric(word) and not say.average_kind(word)


def _without_percent(name: str) -> str:
    return re.sub(r"\s*[(\[]\s*(?:%|in %|percent|\\%)\s*[)\]]\s*$|\s*%\s*$", "", name)


def _shared_measures(names: Sequence[str]) -> set[str]:
    """Return the measures that end the heads of several data sets, in small letters."""
    split = [_without_percent(name).rpartition(" ") for name in set(names) if " " in name]
    counts: Counter[str] = Counter()
    measured, shared = set(), set()
    for stem, _, word in split:
        counts[word.lower()] += 1
        if _is_sure_measure(word, set()):
            measured.add(stem)
    for stem, _, word in split:
        if stem in measured and say.is_metric(word):
            shared.add(word.lower())  # EM beside F1 of one data set
    for word, count in counts.items():
        least = 1
        if word in say.AMBIGUOUS:
            least = len(names) // 2  # CLEVR Distance is a data set
        if count > least and say.is_metric(word):
            shared.add(word)
    return shared


def _is_named_by_letters(name: str, shared: Set[str]) -> bool:
    """Return True for a head like `IN-W Gap` whose words may all be those of measures, beside `SIN Gap`."""
    rest, _, last = _without_percent(name).rpartition(" ")
    if last.lower() not in shared or say.average_kind(rest) or say.split_kind(rest):
        return False
    return bool(rest) and say.HIGHER.isdisjoint(say.split_words(rest)) and say.LOWER.isdisjoint(say.split_words(rest))


def _blocks_of_slashes(meanings: Sequence[Meaning]) -> list[Meaning]:
    """Return the meanings with `PACS/Art` as a part of PACS, and `PACS-Art` if that is a known part."""
    result = []
    split = [re.split(r"(?<!\bw)(?<!\b[0-9])\s*[/:]\s*", meaning.dataset, maxsplit=1) for meaning in meanings]
    if not any(len(parts) > 1 for parts in split):
        split = _parts_of_dashes(meanings)
    if not any(len(parts) > 1 for parts in split):
        split = _numbered_parts(list(map(_dataset_of, meanings)))
    if not any(len(parts) > 1 for parts in split):
        split = [_split_use(meaning.dataset) for meaning in meanings]
    divided = list(map(_divide_brackets, split))
    seconds = [parts[1] for parts in divided if len(parts) > 1]
    if len(set(seconds)) == len(seconds):  # not `A (x)`, `A (y)`, `B (x)` and `B (y)`
        split = divided
    firsts = Counter(parts[0] for parts in split)
    for meaning, parts in zip(meanings, split, strict=True):
        is_slash = len(parts) == 2 and parts[0] and parts[1] and (firsts[parts[0]] > 1 or title_of(parts[0]))
        if not meaning.block and is_slash and (not re.fullmatch(r"[0-9.]+", parts[1]) or "_" in meaning.dataset):
            result.append(replace(meaning, block=parts[0], dataset=parts[1]))
            continue
        result.append(meaning)
    return result


def _numbered_parts(names: Sequence[str]) -> list[list[str]]:
    """Return names like `cifar100_400` as a data set and the number of its labels.

    Two data sets have several numbers each, as `cifar_10` and `cifar_100` alone are no parts of one.
    """
    split = []
    for name in names:
        match = re.fullmatch(r"(.*[a-z].*)_([0-9]+)", name, re.I)
        split.append(list(match.groups()) if match else [name])
    counts = Counter(parts[0] for parts in split if len(parts) > 1)
    return split if sum(count > 1 for count in counts.values()) > 1 else [[name] for name in names]


def _divide_brackets(parts: list[str]) -> list[str]:
    """Return the only part of a name like `RACE (high)` in two; a backbone stays as it is."""
    if len(parts) > 1 or say.BACKBONES.search(parts[0]):
        return parts
    return re.split(r"\s*\((?=[^()]+$)", parts[0].removesuffix(")"))


def _split_use(name: str) -> list[str]:
    """Return a name like `ImageNet k-NN` or `mini-ImageNet (5,1)` as a data set and its use."""
    match = _USE.fullmatch(name)
    return list(match.groups()) if match else [name]


def _dataset_of(meaning: Meaning) -> str:
    return meaning.dataset


def _parts_of_dashes(meanings: Sequence[Meaning]) -> list[list[str]]:
    """Return names like `WTC - Task 1` in two; pairs of domains like `Amazon - DSLR` stay as they are."""
    split = [re.split(r"\s+[-–—]\s+", meaning.dataset, maxsplit=1) for meaning in meanings]
    firsts, seconds = {parts[0] for parts in split}, {parts[1] for parts in split if len(parts) > 1}
    are_pairs = bool(firsts & seconds) or any(len(name) < 2 for name in firsts | seconds)
    return [[meaning.dataset] for meaning in meanings] if are_pairs else split


# --- blocks -----------------------------------------------------------------------------------------------------------


def _with_blocks(meanings: list[Meaning], hint: str, notes: list[str]) -> list[Meaning]:
    """Return the meanings with the data set that they are parts of, by the head or by known names."""
    meanings = _without_group_titles(meanings, hint, notes)
    free = [meaning for meaning in meanings if not meaning.block and meaning.dataset]
    names = [meaning.dataset for meaning in free]
    known_set = find_known(names, hint)
    every = list(map(_dataset_of, meanings))
    are_single = len({meaning.block for meaning in meanings} - {""}) in (0, len(meanings))
    if not known_set and are_single and len(every) > 1 and are_levels(every):
        names = list(dict.fromkeys(every))
        are_numbers = names in [[str(first + position) for position in range(len(names))] for first in (0, 1)]
        advice = " (if they are seeds, say seed=columns)" if are_numbers else ""
        notes.append(f"{', '.join(names)} are levels of one data set, which the table does not name{advice}")
        return [replace(meaning, block=ONE_SET) for meaning in meanings]
    if known_set:
        notes.append(f"{', '.join(dict.fromkeys(names))} are parts of {known_set}, by their names")
        meanings = [replace(m, block=known_set) if _is_free_part(m, known_set) else m for m in meanings]
    blocks = {
        meaning.block for meaning in meanings if meaning.dataset and not say.is_metric(meaning.dataset.split()[-1])
    }
    if len(blocks) == 1 and "" not in blocks:  # measures beside the parts of one data set are of it too
        meanings = [replace(meaning, block=next(iter(blocks))) for meaning in meanings]
    meanings = [_beside_parts(meaning, blocks) for meaning in meanings]
    counted = Counter((meaning.dataset, meaning.variant, meaning.block) for meaning in meanings if meaning.dataset)
    result = []
    for meaning in meanings:
        several = counted[meaning.dataset, meaning.variant, meaning.block] > 1
        result.append(replace(meaning, block=meaning.dataset) if several and not meaning.block else meaning)
    return result


def are_levels(names: Sequence[str]) -> bool:
    """Return True for names like 15 %, K=4, 5-shot and 250, numbered domains, and languages."""
    distinct = list(dict.fromkeys(names))
    is_numbering = all(map(str.isdigit, distinct)) or (len(distinct) > 2 and all(map(say.is_language, distinct)))
    num_levels = sum(say.is_shots(name) or bool(_LEVEL.fullmatch(name)) for name in distinct)  # beside `Full`
    return is_numbering or num_levels == len(distinct) or (num_levels >= 3 and num_levels >= 0.75 * len(distinct))


def _beside_parts(meaning: Meaning, blocks: set[str]) -> Meaning:
    """Return a measure of a whole data set as one of its parts if others of its columns are parts of it."""
    if meaning.block or not meaning.metric or not meaning.dataset or meaning.dataset not in blocks:
        return meaning
    return replace(meaning, block=meaning.dataset, dataset=f"{meaning.dataset} {meaning.metric}")


def _is_free_part(meaning: Meaning, known_set: str) -> bool:
    return bool(meaning.dataset) and not meaning.block and is_part(meaning.dataset, known_set)


def _without_group_titles(meanings: list[Meaning], hint: str, notes: list[str]) -> list[Meaning]:
    """Return the meanings without upper names that group data sets, or parts of one known set."""
    with_block = [meaning for meaning in meanings if meaning.block]
    if not with_block:
        return meanings
    groups: dict[str, list[str]] = {}
    for meaning in with_block:
        groups.setdefault(meaning.block, []).append(meaning.dataset)
    if not any(map(title_of, groups)) and (known_set := find_known(list(groups), hint)):
        notes.append(f"{', '.join(groups)} are parts of {known_set}, by their names")
        return [replace(m, block=known_set, dataset=f"{m.block} {m.dataset}") if m.block else m for m in meanings]
    every = [meaning.dataset for meaning in with_block if not say.is_metric(meaning.dataset)]
    if not any(map(title_of, groups)) and (known_set := find_known(every, hint)):
        notes.append(f"{', '.join(groups)} group parts of {known_set}, by their names")
        return [_in_known_set(meaning, known_set) if meaning.block else meaning for meaning in meanings]
    grouping, why = _find_groups(groups, hint)
    if grouping:
        notes.append(f"{', '.join(grouping)} group data sets, {why}: each counts (`blocks=` names parts that don't)")
    return [replace(meaning, block="") if meaning.block in grouping else meaning for meaning in meanings]


def _find_groups(groups: Mapping[str, Sequence[str]], hint: str) -> tuple[list[str], str]:
    """Return the upper names that group data sets, and how that is known: if one does, all of a line do.

    Known data sets, and names with the same parts, are none.
    """
    counted: Counter[str] = Counter()
    for names in groups.values():
        counted.update(set(names))
    rests, general, of_sets, unknown = [], [], [], []
    for block, names in groups.items():
        spoken = set(say.split_words(block))
        are_parts = any(counted[name] > 1 or say.split_kind(name) for name in names) or find_known(names, hint)
        if len(names) < 2 or are_parts or title_of(block) or say.OF_DATA.search(block):
            continue
        if spoken <= say.RESTS:
            rests.append(block)
        elif spoken <= say.GROUPS:
            general.append(block)
        elif 2 * len(list(filter(say.OF_DATA.search, names))) > len(names):
            of_sets.append(block)
        else:
            unknown.append(block)
    if general:
        return [*general, *of_sets, *unknown, *rests], f"by the name {general[0]}"
    if of_sets:
        return [*of_sets, *unknown, *rests], f"as below {of_sets[0]}"
    return rests, "by this name"


def _in_known_set(meaning: Meaning, known_set: str) -> Meaning:
    return replace(meaning, block=known_set if is_part(meaning.dataset, known_set) else "")


def _with_direction(meaning: Meaning, path: Sequence[str]) -> Meaning:
    """Return the meaning with the direction that its names say."""
    for text in (*reversed(path), meaning.metric):
        if by_arrow := say.arrow(text):
            return replace(meaning, direction=by_arrow)
    path = [text for text in path if not (meaning.block and is_part(text, meaning.block))]  # such as `bit_error`
    in_brackets = re.findall(r"[(\[]([^()\[\]]*)[)\]]", " ".join(reversed(path)))
    measures = [text for text in (*in_brackets, meaning.metric, *reversed(path)) if say.is_metric(text)]
    for text in (*measures, *reversed(path)):
        if by_word := say.direction(text):
            return replace(meaning, direction=by_word)
    return meaning


def apply_blocks(meanings: Sequence[Meaning], blocks: Mapping[str, Sequence[str]]) -> list[Meaning]:
    """Return the meanings with the user's blocks. Raises UsageError for a data set that is not there."""
    names = {*map(_dataset_of, meanings), *(meaning.name for meaning in meanings)}
    by_name = {}
    for block, parts in blocks.items():
        for part in parts:
            match = next((name for name in names if name.casefold() == part.casefold()), None)
            if match is None:
                raise UsageError(f"blocks={block}={part}: there is no such data set{nearest(part, sorted(names))}")
            by_name[match] = block
    counted = Counter(map(_dataset_of, meanings))
    result = []
    for meaning in meanings:
        block = by_name.get(meaning.name, by_name.get(meaning.dataset, ""))
        is_told = say.split_kind(meaning.dataset) or counted[meaning.dataset] > 1
        dataset = f"{meaning.block}/{meaning.dataset}" if meaning.block and is_told else meaning.dataset
        result.append(replace(meaning, block=block, dataset=dataset))
    return result
