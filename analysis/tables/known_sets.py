"""Data sets whose parts tables list: domains, corruptions and categories that count once."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class SetWithParts:
    """A data set, and for each of its parts the names that tables use. The first name may be an initial."""

    name: str
    parts: tuple[tuple[str, ...], ...]
    initials: str = ""  # one letter a part, where tables use these alone
    are_pairs: bool = False  # tables also list pairs of parts: source and target
    least: int = 0  # parts that must be there; 0: all
    aliases: tuple[str, ...] = ()


def _split_parts(text: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(part.split("|")) for part in text.split())


KNOWN = (
    SetWithParts(
        "PACS", _split_parts("art|artpainting|artp|arts cartoon|cartoons photo|photos sketch|sketches"), "ACPS", least=3
    ),
    SetWithParts("VLCS", _split_parts("caltech|caltech101 labelme sun|sun09 voc|voc2007|pascal|pascalvoc"), "CLSV"),
    SetWithParts(
        "OfficeHome",
        _split_parts("art|ar clipart|cl|clip product|pr real|realworld|rw|re"),
        "ACPR",
        are_pairs=True,
        least=3,
        aliases=("office-home", "office_home"),
    ),
    SetWithParts(
        "TerraIncognita",
        _split_parts("l100|loc100|location100 l38|loc38|location38 l43|loc43|location43 l46|loc46|location46"),
        aliases=("terra incognita", "terrainc", "terra"),
    ),
    SetWithParts(
        "DomainNet",
        _split_parts("clip|clipart|clp infograph|info|inf painting|paint|pnt quickdraw|quick|qdr real|rel sketch|skt"),
        "CIPQRS",
        are_pairs=True,
    ),
    SetWithParts(
        "DomainNet", _split_parts("clipart|c|clp painting|p|pnt real|r|rel sketch|s|skt"), "CPRS", are_pairs=True
    ),
    SetWithParts("ColoredMNIST", _split_parts("+90|+90% +80|+80% -90|-90%"), aliases=("cmnist", "colored mnist")),
    SetWithParts("ColoredMNIST", _split_parts("01 02 09")),
    SetWithParts("RotatedMNIST", _split_parts("0 15 30 45 60 75"), aliases=("rmnist", "rotated mnist")),
    SetWithParts(
        "Office-31", _split_parts("amazon|amz|a dslr|dsl|d webcam|web|w"), "ADW", are_pairs=True, aliases=("office31",)
    ),
    SetWithParts(
        "Office-Caltech",
        _split_parts("amazon|a caltech|c dslr|d webcam|w"),
        "ACDW",
        are_pairs=True,
        aliases=("office-caltech10", "office caltech"),
    ),
    SetWithParts(
        "ImageCLEF-DA", _split_parts("imagenet|i pascal|p caltech|c"), "ICP", are_pairs=True, aliases=("imageclef",)
    ),
    SetWithParts("NICO++", _split_parts("autumn rock dim grass outdoor water"), "ARDGOW", aliases=("nico",)),
    SetWithParts(
        "Digits-DG", _split_parts("mnist|mt mnistm|mm svhn|sv syn|sy|synthetic"), aliases=("digits", "digits-5")
    ),
    SetWithParts(
        "ImageNet-C",
        _split_parts(
            "gaussiannoise|gauss|gaussian|gaus shotnoise|shot impulsenoise|impulse|impul|imp "
            "defocusblur|defocus|defoc|def glassblur|glass|gls motionblur|motion|mtn|mot zoomblur|zoom|zm "
            "snow|snw frost|frst|fro fog "
            "brightness|brit|bright|bri|brt contrast|contr|cont|cnt elastictransform|elastic|elas|elast|els "
            "pixelate|pixel|pixelated|pix|px jpegcompression|jpeg|jpg specklenoise|speckle gaussianblur "
            "saturate|satur spatter"
        ),
        least=8,
        aliases=("imagenet-c", "cifar-10-c", "cifar10-c", "cifar-100-c", "cifar100-c"),
    ),
    SetWithParts(
        "ImageNet-3DCC",
        _split_parts(
            "nearfocus farfocus biterror colorquant flash fog3d h265abr h265crf isonoise lowlight xymotionblur "
            "zmotionblur"
        ),
        least=6,
    ),
    SetWithParts(
        "Cityscapes",
        _split_parts(
            "road sidewalk|sw building|build wall fence pole trafficlight|tlight|light trafficsign|tsign|sign "
            "vegetation|veg terrain sky person rider car truck bus train motorbike|motorcycle|motor|mbike bicycle|bike"
        ),
        least=10,
    ),
    SetWithParts(
        "VisDA",
        _split_parts(
            "plane|aeroplane bcycl|bicycle|bcycle bus car horse|hrs knife mcycl|motorcycle|mcycle person plant "
            "sktbrd|skateboard train truck"
        ),
        aliases=("visda-c", "visda-2017", "visda2017"),
    ),
    SetWithParts(
        "MVTec",
        _split_parts(
            "bottle cable capsule carpet grid hazelnut|hazel leather metalnut|metal pill screw tile toothbrush "
            "transistor wood zipper"
        ),
        least=8,
        aliases=("mvtec ad", "mvtec-ad", "mvtecad"),
    ),
    SetWithParts(
        "VisA",
        _split_parts("candle capsules cashew chewinggum fryum macaroni1 macaroni2 pcb1 pcb2 pcb3 pcb4 pipefryum"),
        least=8,
    ),
    SetWithParts(
        "MMLU", _split_parts("stem humanities|human socialsciences|social|socialscience other|others"), least=4
    ),
)
CORRUPTED = "ImageNet-C"
_ARROW = re.compile(r"\s*(?:→|->|—>|=>|⇒|to\b|–|-|>|2(?=[A-Z]))\s*")


def _plain(name: str) -> str:
    text = re.sub(r"[(\[].*?[)\]]", "", name.lower())
    if re.fullmatch(r"\s*[+-]\d+\s*%?\s*", text):
        return text.strip()
    return re.sub(r"[^a-z0-9]", "", text)


def find_known(names: Sequence[str], hint: str = "") -> str:
    """Return the data set of which all these names are parts; empty if they are those of none, or of several.

    hint: words around the table; of corruptions they say which images were corrupted.
    """
    distinct = list(dict.fromkeys(name.strip() for name in names))
    if len(distinct) < 2:
        return ""
    matching = [candidate for candidate in KNOWN if _are_parts(distinct, candidate) or _are_pairs(distinct, candidate)]
    titles = list(dict.fromkeys(candidate.name for candidate in matching))
    if len(titles) > 1:
        said = [title for title in titles if _plain(title) in _plain(hint.replace("(", " ").replace(")", " "))]
        titles = said if len(said) == 1 else _most_complete(distinct, matching)
    if len(titles) != 1:
        return ""
    if titles[0] == CORRUPTED:
        return _corrupted(hint)
    if titles[0] == "MMLU" and (titled := re.search(r"C-?Eval|CMMLU|\w+MMLU(?:-\w+)?", hint)):
        return titled.group()
    return titles[0]


def _most_complete(names: Sequence[str], matching: Sequence[SetWithParts]) -> list[str]:
    """Return the set that has no part but those of the pairs or names, if it is one alone."""
    used = set(itertools.chain.from_iterable(map(_parts_of_pair, names)))
    size = len(used) or len(names)
    exact = [candidate.name for candidate in matching if len(candidate.parts) == size]
    return list(dict.fromkeys(exact))


def _corrupted(hint: str) -> str:
    """Return the name of the corrupted data set: ImageNet-C, if the words around the table say no other."""
    images = r"(?:tiny[- ]?)?imagenet(?:-\w+)?|cifar-?100|cifar-?10"
    match = re.search(rf"(?:{images})-(?:c|c\b|corrupt\w*)(?![\w])", hint, re.I)
    if match is None and (named := re.search(rf"(?<![a-z])(?:{images})(?![0-9])", hint, re.I)):
        return f"{named.group(0)}-C"
    return match.group(0) if match else CORRUPTED


def _are_parts(names: Sequence[str], candidate: SetWithParts) -> bool:
    """Return True if each name is another part of the set, and enough parts are there."""
    if candidate.initials and all(len(name) == 1 and name.isupper() for name in names):
        return sorted(names) == sorted(candidate.initials)
    used: set[int] = set()
    for name in names:
        text = _plain(name)
        match = [number for number, part in enumerate(candidate.parts) if text in part]
        if (len(text) == 1 and text.isalpha()) or not match or used & {match[0]}:
            return False
        used.add(match[0])
    return len(used) >= (candidate.least or len(candidate.parts))


def _parts_of_pair(name: str) -> list[str]:
    parts = [part for part in _ARROW.split(name.strip()) if part]
    return parts if len(parts) == 2 else []


def _are_pairs(names: Sequence[str], candidate: SetWithParts) -> bool:
    """Return True if each name is a pair of different parts of the set, from one to the other."""
    if not candidate.are_pairs:
        return False
    ends: set[int] = set()
    seen: set[tuple[int, int]] = set()
    for name in names:
        pair = []
        for part in _parts_of_pair(name):
            pair += [
                number for number, spelled in enumerate(candidate.parts) if _is_part(part, spelled, candidate, number)
            ][:1]
        if len(pair) != 2 or pair[0] == pair[1] or (pair[0], pair[1]) in seen:
            return False
        seen.add((pair[0], pair[1]))
        ends |= set(pair)
    return len(ends) == len(candidate.parts)


def _is_part(text: str, spelled: Iterable[str], candidate: SetWithParts, number: int) -> bool:
    if len(text.strip()) == 1:
        return text.strip().upper() == (candidate.initials[number] if candidate.initials else "")
    return _plain(text) in spelled


def is_part(name: str, title: str) -> bool:
    """Return True if a name, or each end of a pair, is that of a part of a known set."""
    if title not in {candidate.name for candidate in KNOWN}:
        title = "MMLU" if re.search("mmlu|eval", title, re.I) else CORRUPTED
    for candidate in (candidate for candidate in KNOWN if candidate.name == title):
        for text in _parts_of_pair(name) or [name]:
            if len(text.strip()) == 1 or _plain(text) in itertools.chain.from_iterable(candidate.parts):
                return True
    return False


def title_of(name: str) -> str:
    """Return the known data set that a name is; empty for none."""
    text = re.sub(r"[^a-z0-9]", "", name.lower())
    for candidate in KNOWN:
        spelled = itertools.chain((candidate.name,), candidate.aliases)
        if text in {re.sub(r"[^a-z0-9]", "", title.lower()) for title in spelled}:
            return candidate.name
    return ""
