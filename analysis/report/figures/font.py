"""Font of the figures: the European letters and the signs of DejaVu Sans, without its layout tables.

A PDF holds the letters that it shows. Cutting them out of the whole font takes a tenth of a second for every PDF, most
of it for tables of Arabic and ligatures that figures don't need. Kerning stays. Letters that are not here come from
DejaVu Sans itself, which is part of matplotlib. `python analysis/report/figures/font.py` makes the file anew.
"""

from __future__ import annotations

from pathlib import Path

from matplotlib import font_manager, get_data_path

FILE = Path(__file__).with_name("DejaVuSansEuropean.ttf")
NAME = "DejaVu Sans European"
FAMILIES = [NAME, "DejaVu Sans"]
# Latin, Greek, Cyrillic, punctuation, currencies and super- and subscripts, arrows and operators.
LETTERS = ((0x20, 0x24F), (0x370, 0x4FF), (0x2000, 0x20BF), (0x2100, 0x22FF))
LAYOUT = ["GDEF", "GPOS", "GSUB", "MATH"]  # tables
FAMILY_NAME, STYLE_NAME, FULL_NAME, POSTSCRIPT_NAME = 1, 2, 4, 6  # in the table of names
COPYRIGHT, VERSION, LICENCE, LICENCE_ADDRESS = 0, 5, 13, 14


def register() -> None:
    """Make the font known to matplotlib."""
    font_manager.fontManager.addfont(FILE)


def _make_file() -> None:
    """Cut the file out of matplotlib's DejaVu Sans."""
    from fontTools import subset
    from fontTools.ttLib import TTFont

    font = TTFont(Path(get_data_path(), "fonts", "ttf", "DejaVuSans.ttf"), recalcTimestamp=False)
    names = {FAMILY_NAME: NAME, STYLE_NAME: "Regular", FULL_NAME: NAME, POSTSCRIPT_NAME: NAME.replace(" ", "")}
    options = subset.Options(legacy_kern=True, hinting=False, notdef_outline=True)
    options.name_IDs = [*names, COPYRIGHT, VERSION, LICENCE, LICENCE_ADDRESS]
    options.drop_tables += [*LAYOUT, "FFTM", "gasp"]
    cutter = subset.Subsetter(options)
    for first, last in LETTERS:
        cutter.populate(unicodes=range(first, last + 1))
    cutter.subset(font)
    for record in font["name"].names:
        record.string = names.get(record.nameID, record.toUnicode())
    font.save(FILE)


if __name__ == "__main__":
    _make_file()
