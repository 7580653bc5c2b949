"""What the result says: words, tables, figures, pages. Nothing is computed here."""
