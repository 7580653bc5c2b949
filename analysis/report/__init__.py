"""Report of a result: sentences, tables, figures, pages. Nothing is computed here."""
